// The guests: what a configuration may name of other programs, as values that a room walks without
// knowing whose they are. They register in one list, tools/guides/guests.cpp, which the build links
// behind this room: no room but tools/guides has a guest's name (tests/lint/guests.sh).
// Not here: what a kind of guest is (the headers below).
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "optim/loss_scaler.h"
#include "tools/config/config.h"
#include "tools/data/row_template.h"
#include "tools/data/token_file.h"
#include "tools/report/log_lines.h"
#include "tools/report/result_files.h"

namespace fsdp::config {

// A rule for the loss scale: where the defaults of train.loss_scale come from.
struct GuestLossScale {
  std::string_view name;               // as a value of train.loss_scale.rule
  std::string_view initial, interval;  // what they are, for the help
  optim::LossScalerOptions (*options)(int ranks, int64_t micro_steps);
};

// The labels of data::Objective::kApart, which a script has by mistake.
struct GuestLabels {
  std::string_view name;  // as a value of data.objective
  std::string_view note;  // what they do, for the run that has them
};

// A folder that looks like a checkpoint, and is another program's.
struct ForeignCheckpoint {
  std::string_view program;
  // Of what is in a folder: "" where it is no part of such a checkpoint, else the command that
  // exports its weights.
  std::string (*way_out)(const std::filesystem::directory_entry& entry);
};

// Configurations of other programs.
struct ForeignConfiguration {
  // Of a file that is no configuration of ours: the command that takes it over; "" where there is
  // none. `text`: what the file holds.
  std::string (*way_over)(const std::string& file, const std::string& text);
};

template <typename Guest>
using GuestsOf = std::vector<const Guest*>;
using Guests = std::tuple<GuestsOf<data::TokenFormat>, GuestsOf<data::NamedTemplate>,
                          GuestsOf<tools::LogLines>, GuestsOf<tools::ResultFiles>,
                          GuestsOf<GuestLabels>, GuestsOf<GuestLossScale>,
                          GuestsOf<ForeignCheckpoint>, GuestsOf<ForeignConfiguration>>;
const Guests& guests();

template <typename Guest>
const GuestsOf<Guest>& guests_of() {
  return std::get<GuestsOf<Guest>>(guests());
}
template <typename Own, typename Guest>
std::string_view name_of(const OwnOrGuest<Own, Guest>& choice) {
  return choice.guest ? choice.guest->name : name_of(choice.own);
}
// "a, b": the names of a kind.
template <typename Guest>
std::string guest_names() {
  std::string out;
  for (const Guest* guest : guests_of<Guest>()) {
    out += (out.empty() ? "" : ", ") + std::string(guest->name);
  }
  return out;
}

}  // namespace fsdp::config
