#!/usr/bin/env python3
"""Makes the chess games of `make train`: engine self-play, one game a line, as JSONL.

    tools/data/make_chess_games.py [--games 3400] [--seed 1] [--nodes 1500] [--out tools/data/chess]

Needs Debian's `stockfish` and `python3-chess` (or `pip install chess`). Not part of the build: the
files it made are in the repository, beside a README.md with how and when. A line is
{"text": "e2e4 c7c5 ..."}, the moves in UCI notation.

How a game is made. The engine names its best five moves with scores; one is drawn with weight
exp(-loss / temperature). The temperature is drawn per game and side (a strong side hardly ever
leaves the best move) and is higher in the first plies, so that openings differ. A game ends by mate,
stalemate, insufficient material, threefold repetition or the 50-move rule; by resignation (beyond
900 centipawns for the same side four plies running); by agreement (within 15 centipawns for ten
plies, after ply 60); or at 120 plies. One engine thread, limits in nodes and a fresh hash table per
game: the same seed and engine give the same games.
"""
import argparse
import json
import math
import pathlib
import random
import shutil
import subprocess
import time

import chess

MAX_PLIES = 120
MIN_PLIES = 16
MAX_LOSS = 150  # centipawns that a drawn move may lose against the best one
OPENING_TEMPERATURE = 50.0
TEMPERATURES = (4.0, 10.0, 20.0, 40.0)  # centipawns
VALIDATION_EVERY = 20  # one game in 20, 5 %


class Engine:
    """Stockfish over its UCI pipe. Scores are centipawns for the side to move."""

    def __init__(self, nodes):
        path = shutil.which("stockfish") or "/usr/games/stockfish"
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, bufsize=1)
        self.nodes = nodes
        self.send("uci")
        self.name = [line for line in self.read_until("uciok") if line.startswith("id name")][0][8:]
        for option, value in (("Threads", 1), ("Hash", 16), ("MultiPV", 5)):
            self.send(f"setoption name {option} value {value}")

    def send(self, command):
        self.process.stdin.write(command + "\n")

    def read_until(self, word):
        lines = []
        while not lines or not lines[-1].startswith(word):
            line = self.process.stdout.readline()
            if not line:
                raise RuntimeError("the engine ended")
            lines.append(line.rstrip())
        return lines

    def new_game(self):
        self.send("ucinewgame")
        self.send("isready")
        self.read_until("readyok")

    def candidates(self, moves):
        """[(score, move)] of the best moves after `moves`, best first."""
        self.send("position startpos moves " + " ".join(moves))
        self.send(f"go nodes {self.nodes}")
        best = {}
        for line in self.read_until("bestmove"):
            words = line.split()
            if "multipv" not in words or "bound" in line:
                continue
            kind, value = words[words.index("score") + 1:words.index("score") + 3]
            score = int(value)
            if kind == "mate":
                score = 10000 - score if score > 0 else -10000 - score
            best[int(words[words.index("multipv") + 1])] = (score, words[words.index("pv") + 1])
        return sorted(best.values(), reverse=True)

    def close(self):
        self.send("quit")
        self.process.wait()


def draw_move(candidates, temperature, rng):
    top = candidates[0][0]
    kept = [(score, move) for score, move in candidates if top - score <= MAX_LOSS]
    weights = [math.exp((score - top) / temperature) for score, _ in kept]
    return rng.choices([move for _, move in kept], weights=weights)[0]


def adjudicated(scores):
    """True when the last scores (White's view) say that playing on is pointless."""
    last = scores[-4:]
    if len(last) == 4 and (min(last) > 900 or max(last) < -900):
        return True
    return len(scores) > 60 and all(abs(score) <= 15 for score in scores[-10:])


def play_game(engine, rng):
    """Plays one game; returns its moves in UCI notation and how it ended."""
    engine.new_game()
    board = chess.Board()
    opening_plies = rng.randint(4, 10)
    temperatures = (rng.choice(TEMPERATURES), rng.choice(TEMPERATURES))
    moves, scores = [], []
    while len(moves) < MAX_PLIES:
        if board.is_game_over():
            return moves, board.outcome().termination.name.lower()
        if board.is_repetition(3) or board.is_fifty_moves():
            return moves, "repetition or 50 moves"
        if adjudicated(scores):
            return moves, "resigned or agreed"
        candidates = engine.candidates(moves)
        scores.append(candidates[0][0] if board.turn == chess.WHITE else -candidates[0][0])
        opening = len(moves) < opening_plies
        moves.append(draw_move(
            candidates, OPENING_TEMPERATURE if opening else temperatures[len(moves) % 2], rng))
        board.push_uci(moves[-1])
    return moves, "120 plies"


def write_lines(path, games):
    with open(path, "w", encoding="utf-8") as file:
        for game in games:
            file.write(json.dumps({"text": game}) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--games", type=int, default=3400)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--nodes", type=int, default=1500, help="engine nodes per move")
    parser.add_argument("--out", default=str(pathlib.Path(__file__).parent / "chess"))
    arguments = parser.parse_args()

    rng = random.Random(arguments.seed)
    engine = Engine(arguments.nodes)
    games, endings, plies, begin = {}, {}, 0, time.time()
    while len(games) < arguments.games:
        moves, ending = play_game(engine, rng)
        game = " ".join(moves)
        if len(moves) < MIN_PLIES or game in games:
            continue
        games[game] = ending
        plies += len(moves)
        endings[ending] = endings.get(ending, 0) + 1
        if len(games) % 100 == 0:
            print(f"{len(games)} games, {time.time() - begin:.0f} s", flush=True)
    engine.close()

    games = list(games)
    out = pathlib.Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    validation = games[::VALIDATION_EVERY]
    train = [game for index, game in enumerate(games) if index % VALIDATION_EVERY]
    write_lines(out / "train.jsonl", train)
    write_lines(out / "validation.jsonl", validation)
    print(f"{engine.name}: {len(train)} train + {len(validation)} validation games, "
          f"{plies / len(games):.1f} plies on average, endings {endings}")


if __name__ == "__main__":
    main()
