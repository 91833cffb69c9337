// Contract: comm/fsdp/home/file_home.h.
#include "comm/fsdp/home/file_home.h"

namespace fsdp::comm {

FileHome::FileHome(FileHomes& homes, ShardSpec spec)
    : HostHome(homes, std::move(spec)), file_homes_(homes) {
  constexpr auto kCategory = MemoryCategory::kParameterShard;
  const Shape shape = {spec_.numel};
  if (spec_.trainable) {
    paged_.emplace(homes.pages());
    const auto [home, here] = paged_->add(shape, spec_.master_dtype, kCategory);
    stored_.master = home;
    at_work_.master = here;
  } else {
    stored_.master = file_tensor(homes.file(), shape, spec_.master_dtype, kCategory);
  }
  if (spec_.master_dtype != spec_.dtype) {
    const auto [home, here] = paged_->add(shape, spec_.dtype, kCategory);
    stored_.copy = home;
    at_work_.copy = here;
  }
  homes.transfers().expect_loads(paged_bytes(values()));
}

// ---------------------------------------------------------------------------- Values

// What somebody else wrote is waited for once: the stream runs in order.
EventPtr FileHome::load_values(const Tensor& to, const EventPtr& free) {
  file_homes_.file().wait(file_homes_.from_file(), written_);
  written_ = nullptr;
  return file_homes_.transfers().load(values(), to, paged_ ? paged_->written() : nullptr, free);
}

void FileHome::written() {
  Backend& file = file_homes_.file();
  if (stored_.copy.defined()) {
    paged_->bring_in(PagedTensors::What::kAll);
    make_copy(homes_.updates());
    paged_->give_back();
  }
  written_ = file.record(file.compute_stream());
  kept_since_ = nullptr;
}

// ---------------------------------------------------------------------------- Gradient

// One that is needed only until its own update stays in the host's memory.
void FileHome::keep_gradient(const Tensor& shard, bool has_memory) {
  if (homes_.rank().gives_gradients_back) return HostHome::keep_gradient(shard, has_memory);
  take_gradient(shard, has_memory);
  const auto [home, here] = paged_->add(shard.shape(), shard.dtype(), MemoryCategory::kGradient,
                                        PagedTensors::Kind::kGiven);
  stored_.gradient = home;
  at_work_.gradient = here;
  file_homes_.transfers().expect_stores(paged_bytes(home));
  if (is_lent_) file_homes_.transfers().expect_loads(paged_bytes(home));
}

EventPtr FileHome::load_gradient(const EventPtr& free) {
  return file_homes_.transfers().load(stored_.gradient, shard_, gradient_written_, free);
}

EventPtr FileHome::send_gradient(const EventPtr& reduced) {
  if (homes_.rank().gives_gradients_back) return HostHome::send_gradient(reduced);
  const FileTransfers::Stored stored =
      file_homes_.transfers().store(shard_, stored_.gradient, reduced);
  gradient_written_ = stored.written;
  return stored.sent;
}

// Behind what read it in the last step.
void FileHome::zero_gradient() {
  const Tensor& gradient = stored_.gradient;
  file_homes_.file().fill_zero(file_homes_.state_in(), gradient.data(), paged_bytes(gradient));
}

void FileHome::hand_over(const EventPtr& reduced, const Flags& flags) {
  file_homes_.file().wait(file_homes_.state_in(), gradient_written_);
  HostHome::hand_over(reduced, flags);
}

void FileHome::clear_gradient() {
  HostHome::clear_gradient();
  gradient_written_ = nullptr;
}

void FileHome::forget_events() {
  HostHome::forget_events();
  gradient_written_ = nullptr;
  if (paged_) paged_->forget_events();
}

// ---------------------------------------------------------------------------- The optimizer

ShardAccess::State FileHome::add_state(const Tensor& master, DType dtype) {
  const auto [home, here] = paged_->add(master.shape(), dtype, MemoryCategory::kOptimizerState);
  return {.values = here, .stored = home};
}

void FileHome::begin(Use use) {
  if (use == Use::kNorm && homes_.rank().gives_gradients_back) return;
  paged_->bring_in(use == Use::kUpdate ? PagedTensors::What::kAll : PagedTensors::What::kGiven);
}

void FileHome::end(Use use) {
  ShardHome::end(use);
  if (use == Use::kNorm && homes_.rank().gives_gradients_back) return;
  paged_->give_back();
  if (use != Use::kUpdate) return;
  end_update();
  kept_since_ = nullptr;  // the next fetch waits for PagedTensors::written
}

// ---------------------------------------------------------------------------- Of a rank

FileHomes::FileHomes(const HomeRank& rank, Backend& host, Backend& file)
    : HostHomes(rank, host, {}),
      file_(file),
      from_file_(file.create_stream("from_file")),
      to_file_(file.create_stream("to_file")),
      state_in_(file.create_stream("state_in")),
      state_out_(file.create_stream("state_out")),
      transfers_(host, {*from_file_, from_host(), to_host(), *to_file_}),
      pages_(host, file, *state_in_, *state_out_) {}

std::shared_ptr<ShardHome> FileHomes::keep(ShardSpec spec) {
  return std::make_shared<FileHome>(*this, std::move(spec));
}

void FileHomes::allocate() {
  HostHomes::allocate();
  transfers_.allocate();
}

void FileHomes::wait_for_gradients() { file_.wait(*state_in_, file_.record(*to_file_)); }

void FileHomes::drop_gradients() {
  HostHomes::drop_gradients();
  wait_for_gradients();
}

void FileHomes::before_masters_are_written() {
  for (Stream* reader : {from_file_.get(), state_in_.get()}) {
    file_.wait(file_.compute_stream(), file_.record(*reader));
  }
}

void FileHomes::masters_written() { file_.wait(*state_in_, file_.record(file_.compute_stream())); }

std::vector<Stream*> FileHomes::streams() const {
  std::vector<Stream*> all = HostHomes::streams();
  for (const auto* stream : {&from_file_, &to_file_, &state_in_, &state_out_}) {
    all.push_back(stream->get());
  }
  all.push_back(&file_.compute_stream());
  return all;
}

void FileHomes::forget_events() {
  HostHomes::forget_events();
  transfers_.forget_events();
  pages_.forget_events();
}

}  // namespace fsdp::comm
