// Makes a unit of anybody's module: Unit<M> is M with the four events around its forward.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <array>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "intarsia/nn/recompute/recompute.h"
#include "intarsia/nn/unit.h"

namespace intarsia::nn {

// Calls `visit` with each tensor inside of `value`, so that it may be looked at or replaced: tensors, and optional,
// vector, array, pair and tuple of what has tensors. Anything else has none.
template <typename T, typename Visit>
void visit_tensors(T& value, Visit& visit);

namespace detail {

template <typename T>
struct Tensors {
  static constexpr bool kSome = false;
  template <typename Visit>
  static void visit(T& /*value*/, Visit& /*visit*/) {}
};
template <>
struct Tensors<at::Tensor> {
  static constexpr bool kSome = true;
  template <typename Visit>
  static void visit(at::Tensor& value, Visit& visit) {
    visit(value);
  }
};
template <typename T>
struct Tensors<std::optional<T>> {
  static constexpr bool kSome = Tensors<T>::kSome;
  template <typename Visit>
  static void visit(std::optional<T>& value, Visit& visit) {
    if (value) visit_tensors(*value, visit);
  }
};
template <typename T>
struct Tensors<std::vector<T>> {
  static constexpr bool kSome = Tensors<T>::kSome;
  template <typename Visit>
  static void visit(std::vector<T>& value, Visit& visit) {
    if constexpr (kSome)
      for (T& item : value) visit_tensors(item, visit);
  }
};
template <typename T, std::size_t N>
struct Tensors<std::array<T, N>> {
  static constexpr bool kSome = Tensors<T>::kSome;
  template <typename Visit>
  static void visit(std::array<T, N>& value, Visit& visit) {
    for (T& item : value) visit_tensors(item, visit);
  }
};
template <typename A, typename B>
struct Tensors<std::pair<A, B>> {
  static constexpr bool kSome = Tensors<A>::kSome || Tensors<B>::kSome;
  template <typename Visit>
  static void visit(std::pair<A, B>& value, Visit& visit) {
    visit_tensors(value.first, visit);
    visit_tensors(value.second, visit);
  }
};
template <typename... T>
struct Tensors<std::tuple<T...>> {
  static constexpr bool kSome = (... || Tensors<T>::kSome);
  template <typename Visit>
  static void visit(std::tuple<T...>& value, Visit& visit) {
    std::apply([&](T&... items) { (visit_tensors(items, visit), ...); }, value);
  }
};

template <typename T>
TensorList list_tensors(T& value) {
  TensorList tensors;
  auto append = [&tensors](const at::Tensor& tensor) { tensors.push_back(tensor); };
  visit_tensors(value, append);
  return tensors;
}

template <typename T>
void put_tensors(T& value, const TensorList& tensors) {
  auto next = tensors.begin();
  auto put = [&next](at::Tensor& tensor) { tensor = *next++; };
  visit_tensors(value, put);
}

}  // namespace detail

template <typename T, typename Visit>
void visit_tensors(T& value, Visit& visit) {
  detail::Tensors<T>::visit(value, visit);
}

// Runs body(inputs...) as unit `unit` and returns what it returns: run_unit for any types. `events` may be null. Inputs
// are copied (tensors as handles). A tensor that needs a gradient may also be captured by `body`; if none is among the
// inputs, the unit stays whole until the whole backward is over. `body` must not change its inputs in place.
template <typename Body, typename... Inputs>
auto call_unit(UnitEvents* events, int unit, Body&& body, Inputs&&... inputs) {
  using Arguments = std::tuple<std::decay_t<Inputs>...>;
  using Result = std::decay_t<std::invoke_result_t<Body&, std::decay_t<Inputs>&...>>;
  static_assert(detail::Tensors<Result>::kSome,
                "a unit returns tensors: at::Tensor, or optional, vector, array, pair, tuple of it");
  Arguments arguments(std::forward<Inputs>(inputs)...);
  if (events == nullptr) return Result(std::apply(body, arguments));
  std::optional<Result> result;
  const TensorList outputs = run_unit(events, unit, detail::list_tensors(arguments), [&](const TensorList& watched) {
    detail::put_tensors(arguments, watched);
    result.emplace(std::apply(body, arguments));
    return detail::list_tensors(*result);
  });
  detail::put_tensors(*result, outputs);
  return std::move(*result);
}

// The same with recomputed activations (recompute.h). `body` is kept until backward has run, and runs again there.
template <typename Body, typename... Inputs>
auto call_unit_recomputed(UnitEvents* events, int unit, const RecomputeOptions& options, const Body& body,
                          Inputs&&... inputs) {
  using Arguments = std::tuple<std::decay_t<Inputs>...>;
  using Result = std::decay_t<std::invoke_result_t<const Body&, std::decay_t<Inputs>&...>>;
  Arguments arguments(std::forward<Inputs>(inputs)...);
  const TensorList tensors = detail::list_tensors(arguments);
  // The piece gets its tensors as inputs; kept here they would keep more alive than it needs.
  detail::put_tensors(arguments, TensorList(tensors.size()));
  const auto result = std::make_shared<std::optional<Result>>();
  const ListForward forward = recomputed(
      [arguments, body, first_result = std::weak_ptr(result)](const TensorList& watched) {
        Arguments mine = arguments;
        detail::put_tensors(mine, watched);
        Result value = std::apply(body, mine);
        const TensorList outputs = detail::list_tensors(value);
        if (const auto first = first_result.lock()) first->emplace(std::move(value));
        return outputs;
      },
      options);
  const TensorList outputs = run_unit(events, unit, tensors, forward);
  detail::put_tensors(**result, outputs);
  return Result(std::move(**result));
}

// Where a module that is a unit learns who listens. Without a connection it runs as the plain module.
class UnitSlot {
 public:
  virtual ~UnitSlot() = default;
  // `events` must outlive the connection; null ends it. With `recompute` activations are recomputed in backward.
  void connect(UnitEvents* events, int unit, std::optional<RecomputeOptions> recompute = std::nullopt) {
    events_ = events;
    unit_ = unit;
    recompute_ = std::move(recompute);
  }

 protected:
  UnitEvents* events_ = nullptr;
  int unit_ = 0;
  std::optional<RecomputeOptions> recompute_;
};

template <typename Module, typename Forward = decltype(&Module::forward)>
class UnitImpl;

// The module itself, with its constructors, names and parameters; forward() fires the events. Calling forward through a
// pointer to the plain Module passes them by: the parameters are then read outside of their unit, which is an error.
// Module has one forward() that is no template.
template <typename Module, typename Class, typename Result, typename... Arguments>
class UnitImpl<Module, Result (Class::*)(Arguments...)> : public Module, public UnitSlot {
 public:
  using Module::Module;
  Result forward(Arguments... arguments) {
    const auto body = [this](std::decay_t<Arguments>&... watched) {
      return Module::forward(static_cast<Arguments>(watched)...);
    };
    if (recompute_)
      return call_unit_recomputed(events_, unit_, *recompute_, body, std::forward<Arguments>(arguments)...);
    return call_unit(events_, unit_, body, std::forward<Arguments>(arguments)...);
  }
};
template <typename Module, typename Class, typename Result, typename... Arguments>
class UnitImpl<Module, Result (Class::*)(Arguments...) const>
    : public UnitImpl<Module, Result (Class::*)(Arguments...)> {
 public:
  using UnitImpl<Module, Result (Class::*)(Arguments...)>::UnitImpl;
};

namespace detail {

template <typename T, bool kIsModule = std::is_base_of_v<torch::nn::Module, T>>
struct ModuleOf {
  using Type = T;
};
template <typename T>
struct ModuleOf<T, false> {
  using Type = typename T::ContainedType;
};

}  // namespace detail

// Unit<torch::nn::Linear> is used as torch::nn::Linear is; Unit<M> of a module class M as a holder made by
// TORCH_MODULE.
template <typename M>
class Unit : public torch::nn::ModuleHolder<UnitImpl<typename detail::ModuleOf<M>::Type>> {
 public:
  using torch::nn::ModuleHolder<UnitImpl<typename detail::ModuleOf<M>::Type>>::ModuleHolder;
};

}  // namespace intarsia::nn
