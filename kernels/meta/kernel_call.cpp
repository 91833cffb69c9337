// Calls as texts, and again on other tensors: two visitors of the arguments.
#include "kernels/meta/kernel_call.h"

#include <deque>

#include <fmt/format.h>

#include "core/kernel_args.h"

namespace fsdp::meta {
namespace {

// A visitor that puts another tensor in the place of each.
class Substitute {
 public:
  Tensor& operator()(const TensorRole& role, const Tensor& tensor) {
    return places_.emplace_back(other(role, tensor));
  }
  Tensor* operator()(const TensorRole& role, const Tensor* tensor) {
    return tensor ? &(*this)(role, *tensor) : nullptr;
  }
  HeadView operator()(const TensorRole& role, HeadView view) {
    view.tensor = &(*this)(role, *view.tensor);
    return view;
  }

 protected:
  ~Substitute() = default;
  virtual Tensor other(const TensorRole& role, const Tensor& tensor) = 0;

 private:
  std::deque<Tensor> places_;  // that the arguments refer to
};

// The arguments of a call with tensors that have no memory, and with lists of its own.
template <typename Args>
class Description final : public Substitute {
 public:
  explicit Description(const Args& args) : args_(args.visit(*this)) {}
  const Args& args() const { return args_; }
  const std::vector<TensorForm>& forms() const { return forms_; }
  template <typename T>
  const std::vector<T>& list(const std::vector<T>& values) {
    const auto own = std::make_shared<const std::vector<T>>(values);
    lists_.push_back(own);
    return *own;
  }

 private:
  Tensor other(const TensorRole& role, const Tensor& tensor) override {
    forms_.push_back({tensor.shape(), tensor.dtype(), tensor.data(), role});
    return {nullptr, 0, tensor.shape(), tensor.dtype()};
  }

  std::vector<TensorForm> forms_;
  std::vector<std::shared_ptr<const void>> lists_;
  Args args_;
};

// The described call on tensors with memory.
template <typename Args>
class Again final : public Substitute {
 public:
  Again(std::shared_ptr<const Description<Args>> description, CallTensors& tensors)
      : description_(std::move(description)),
        tensors_(&tensors),
        args_(description_->args().visit(*this)) {}
  const Args& args() const { return args_; }
  template <typename T>
  const std::vector<T>& list(const std::vector<T>& values) {
    return values;
  }

 private:
  Tensor other(const TensorRole&, const Tensor&) override {
    return tensors_->make(description_->forms()[next_++]);
  }

  std::shared_ptr<const Description<Args>> description_;
  CallTensors* tensors_;  // while the arguments are made
  size_t next_ = 0;
  Args args_;
};

// "2 x 3", with the dtype where it is not the first tensor's
std::string size_text(const TensorForm& form, DType first) {
  std::string out;
  for (const int64_t extent : form.shape.extents()) {
    out += fmt::format("{}{}", out.empty() ? "" : " x ", extent);
  }
  if (out.empty()) out = "1";
  return form.dtype == first ? out : fmt::format("{} {}", out, name_of(form.dtype));
}

// The extents of the tensors that say how much work there is; in words what else time depends on.
void describe(const std::vector<TensorForm>& forms, std::string words, KernelCall& call) {
  for (const TensorForm& form : forms) {
    if (!form.role.word.empty()) {
      words += fmt::format("{}{}", words.empty() ? "" : ", ", form.role.word);
    }
    if (!form.role.is_size) continue;
    if (call.shape.empty()) {
      call.dtype = form.dtype;
      call.elements = form.shape.numel();
    }
    call.shape += (call.shape.empty() ? "" : ", ") + size_text(form, call.dtype);
  }
  if (!words.empty()) call.shape += "; " + words;
}

TensorForm flat(const void* address, size_t bytes, const TensorRole& role) {
  return {Shape{static_cast<int64_t>((bytes + 3) / 4)}, DType::kF32, address, role};
}

KernelCall of_bytes(std::string_view kernel, size_t bytes, int64_t passes,
                    std::function<KernelRun(CallTensors&)> prepare) {
  return {.kernel = kernel,
          .shape = fmt::format("{} bytes", bytes),
          .cost = {.bytes = passes * static_cast<int64_t>(bytes)},
          .prepare = std::move(prepare)};
}

}  // namespace

KernelCall kernel_call(Kernel kernel) {
  return kernel.visit([&]<typename Args>(const Args& args) {
    const auto description = std::make_shared<const Description<Args>>(args);
    KernelCall call = {.kernel = args.name(), .cost = cost_of(kernel)};
    describe(description->forms(), words_of(kernel), call);
    if constexpr (std::is_same_v<Args, MatmulArgs>) call.product = args.extents();
    if constexpr (requires { call.attention = args.in.extents(); }) {
      call.attention = args.in.extents();
    }
    call.prepare = [description](CallTensors& tensors) -> KernelRun {
      return [again = std::make_shared<const Again<Args>>(description, tensors)](
                 Backend& backend, Stream& stream) { backend.run(stream, again->args()); };
    };
    return call;
  });
}

KernelCall copy_call(const void* destination, const void* source, size_t bytes) {
  const TensorForm to = flat(destination, bytes, kOut), from = flat(source, bytes, kIn);
  return of_bytes("copy", bytes, 2, [=](CallTensors& t) {
    return [bytes, to = t.make(to), from = t.make(from)](Backend& backend, Stream& stream) {
      backend.copy(stream, to.data(), from.data(), bytes);
    };
  });
}

KernelCall fill_zero_call(const void* data, size_t bytes) {
  const TensorForm to = flat(data, bytes, kOut);
  return of_bytes("fill_zero", bytes, 1, [=](CallTensors& t) {
    return [bytes, to = t.make(to)](Backend& backend, Stream& stream) {
      backend.fill_zero(stream, to.data(), bytes);
    };
  });
}

}  // namespace fsdp::meta
