// The walks over the module tree.
#include "comm/fsdp/policy.h"

#include <algorithm>

#include "core/nearest.h"

namespace fsdp::comm {

WrapPolicy wrap_nothing() {
  return [](Module&) { return std::set<const Module*>(); };
}

WrapPolicy wrap_where(std::function<bool(const Module&)> predicate) {
  return [predicate = std::move(predicate)](Module& root) {
    std::set<const Module*> wrapped;
    for (const Module* module : root.modules()) {
      if (module != &root && predicate(*module)) wrapped.insert(module);
    }
    return wrapped;
  };
}

namespace {

[[noreturn]] void unknown_class(Module& root, const std::string& name) {
  std::set<std::string> known;
  for (const Module* module : root.modules()) known.insert(module->class_name());
  std::vector<std::string> names(known.begin(), known.end());
  std::stable_sort(names.begin(), names.end(), [&](const auto& a, const auto& b) {
    return edit_distance(name, a) < edit_distance(name, b);
  });
  fail("[fsdp] wrap policy: no module of class '{}'; this model has {}", name,
       fmt::join(names, ", "));
}

}  // namespace

WrapPolicy wrap_classes(std::vector<std::string> class_names) {
  return [class_names = std::move(class_names)](Module& root) {
    for (const std::string& name : class_names) {
      const std::vector<Module*> modules = root.modules();
      if (std::none_of(modules.begin(), modules.end(),
                       [&](const Module* m) { return m->class_name() == name; })) {
        unknown_class(root, name);
      }
    }
    return wrap_where([&](const Module& module) {
      return std::find(class_names.begin(), class_names.end(), module.class_name()) !=
             class_names.end();
    })(root);
  };
}

namespace {

// Returns how many of `module`'s parameters are in units now.
int64_t wrap_large(const Module& module, int64_t min_num_params, std::set<const Module*>& wrapped) {
  int64_t numel = 0, taken = 0;
  for (const Parameter* parameter : module.parameters()) numel += parameter->numel();
  if (numel < min_num_params) return 0;
  for (const Module* child : module.children()) {
    taken += wrap_large(*child, min_num_params, wrapped);
  }
  const bool container = module.class_name() == "ModuleList" || module.class_name() == "ModuleDict";
  if (container || numel - taken < min_num_params) return taken;
  wrapped.insert(&module);
  return numel;
}

}  // namespace

WrapPolicy wrap_by_size(int64_t min_num_params) {
  FSDP_CHECK(min_num_params > 0, "[fsdp] min_num_params: expected a positive number, got {}",
             min_num_params);
  return [min_num_params](Module& root) {
    std::set<const Module*> wrapped;
    for (const Module* child : root.children()) wrap_large(*child, min_num_params, wrapped);
    return wrapped;
  };
}

}  // namespace fsdp::comm
