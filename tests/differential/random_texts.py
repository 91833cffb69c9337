"""Random texts for tokenizers: words, spaces of all kinds, scripts, marks, emoji, any code point, added tokens."""

import sys

WORDS = """the and of to in that it's don't I'LL We've you'd  Hello WORLD camelCase snake_case x=1; foo(bar) http://a.b/c?d=e
e2e4 g1f3 0-1 3.14 1,000 50% $5 #tag @me naïve façade Ångström résumé straße ĳ ŉ ǆ Ǆ İstanbul ΣΑΣ ὈΔΥΣΣΕΎΣ Привет мир שלום
مرحبا नमस्ते สวัสดี 你好世界 日本語 カタカナ ｶﾞ 한국어 ภาษา ქართული Ꭰꮿ ﬁ ½ ① Ａ ㎏ ﷺ ẞ ǰ ŉ 👍🏽 👩‍💻 🇫🇷 ❤️ 𝒳𝔘 𐐷 ▁ ▁▁ Ġ Ċ <0x0A> ##ing </w> \\n""".split()
SPACES = [" ", " ", " ", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", "\u00a0", "\u3000", "\u2003", "\u2028", "\u0085", "\u200b", "\ufeff", "\x0b", "\x1c"]  # fmt: skip
MARKS = "\u0300\u0301\u0308\u0323\u0327\u0328\u0338\u0345\u0334\u031b\u3099\u309a\u093c\u0653\u05bc\u05b7\u0eba\u1ac0\u0316\u11a7\u11a8\u1161"
BASES = "aeiouAEIOUnNsSyIdcー가か\u1100\u0915\u05d0\u0627ω=<"
ASCII = "".join(map(chr, range(0x20, 0x7F)))
# Characters on which Unicode's versions differ: assigned since 9.
RECENT = [*range(0x1C80, 0x1C8B), *range(0xA7C0, 0xA7E0), *range(0x10D40, 0x10D90), *range(0x11380, 0x113E3),
          *range(0x16D40, 0x16D7A), *range(0x16EA0, 0x16ED4), *range(0x1E4D0, 0x1E4FA), *range(0x31350, 0x31360)]  # fmt: skip


def any_character(rng):
    while True:
        code = rng.choice([rng.randrange(0x250), rng.randrange(0x3000), rng.randrange(0x10000),
                           rng.randrange(0x20000), rng.randrange(sys.maxunicode + 1), rng.choice(RECENT)])  # fmt: skip
        if not 0xD800 <= code < 0xE000:
            return chr(code)


def piece(rng, specials):
    kind = rng.randrange(12)
    if kind < 4:
        return rng.choice(WORDS)
    if kind < 7:
        return rng.choice(SPACES)
    if kind == 7:
        return rng.choice(BASES) + "".join(rng.choice(MARKS) for _ in range(rng.randrange(4)))
    if kind == 8:
        return "".join(rng.choice(ASCII) for _ in range(rng.randrange(1, 9)))
    if kind == 9:
        return "".join(any_character(rng) for _ in range(rng.randrange(1, 4)))
    if kind == 10:
        return "".join(rng.choice("0123456789") for _ in range(rng.randrange(1, 8)))
    token = rng.choice(specials) if specials else "<s>"
    return rng.choice([token, token, token[:-1], token.upper(), " " + token + " ", "a" + token + "b"])


def random_text(rng, specials):
    return "".join(piece(rng, specials) for _ in range(rng.choice([0, 1, 2, 3, 5, 8, 13, 30])))
