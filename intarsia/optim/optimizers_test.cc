// Every optimizer against torch's own numbers, and against itself in other layouts.
#include <map>

#include "intarsia/comm/recorder.h"
#include "intarsia/optim/matrix_exchange.h"
#include "intarsia/optim/muon.h"
#include "intarsia/optim/testing_update.h"

namespace intarsia::optim {
namespace {

using plan::OptimizerKind;
using plan::OptimizerPlan;

struct Case {
  const char* name;
  OptimizerPlan options;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  const auto add = [&](const char* name, OptimizerKind kind, double lr) -> OptimizerPlan& {
    OptimizerPlan& options = all.emplace_back(Case{name, {}}).options;
    options.kind = kind;
    options.lr = lr;
    options.weight_decay = 0.1;
    return options;
  };
  add("adamw", OptimizerKind::kAdam, 0.02).beta2 = 0.95;
  OptimizerPlan& adam = add("adam", OptimizerKind::kAdam, 0.02);
  adam.beta2 = 0.95;
  adam.decoupled_decay = false;
  add("sgd", OptimizerKind::kSgd, 0.05);
  OptimizerPlan& momentum = add("momentum", OptimizerKind::kSgd, 0.05);
  momentum.momentum = 0.9;
  momentum.dampening = 0.3;
  OptimizerPlan& nesterov = add("nesterov", OptimizerKind::kSgd, 0.05);
  nesterov.momentum = 0.9;
  nesterov.nesterov = true;
  add("lion", OptimizerKind::kLion, 0.01).beta2 = 0.99;
  OptimizerPlan& adagrad = add("adagrad", OptimizerKind::kAdagrad, 0.05);
  adagrad.lr_decay = 0.1;
  adagrad.initial_sum = 0.01;
  adagrad.eps = 1e-10;
  OptimizerPlan& lamb = add("lamb", OptimizerKind::kLamb, 0.02);
  lamb.beta2 = 0.95;
  lamb.eps = 1e-6;
  add("adafactor", OptimizerKind::kAdafactor, 0.05).eps = 1.1920928955078125e-07;
  OptimizerPlan& muon = add("muon", OptimizerKind::kMuon, 0.02);
  muon.momentum = 0.95;
  muon.nesterov = true;
  return all;
}

// First, a middle and last element of the four trainable parameters: tests/python/optimizer_values.py with torch 2.15.
const std::map<std::string, std::array<std::array<double, 3>, 4>>& reference() {
  static const std::map<std::string, std::array<std::array<double, 3>, 4>> kValues = {
      {"adamw",
       {{{1.03648162, 0.681784451, -0.884107172},
         {0.57002461, -0.0995641202, -0.938911557},
         {-0.40173775, -1.0361433, 0.24770698},
         {-1.02615929, -0.650555849, 0.909396529}}}},
      {"adam",
       {{{0.912471592, 0.625942826, -0.773627043},
         {0.522314012, -0.0894930735, -0.824735284},
         {-0.363904685, -0.912379503, 0.223827437},
         {-0.904266715, -0.592739999, 0.836231351}}}},
      {"sgd",
       {{{0.979807556, 0.640124321, -0.831494272},
         {0.53254056, -0.113088205, -0.884585321},
         {-0.404341817, -0.979414105, 0.255900621},
         {-0.969474137, -0.644195855, 0.858746886}}}},
      {"momentum",
       {{{0.961229503, 0.632216811, -0.812800646},
         {0.527128935, -0.105415024, -0.865437329},
         {-0.391611546, -0.960705578, 0.245678738},
         {-0.950306237, -0.627799511, 0.845164239}}}},
      {"nesterov",
       {{{0.933774292, 0.614324689, -0.789470196},
         {0.512256265, -0.102187522, -0.840625048},
         {-0.380227745, -0.933259785, 0.238451168},
         {-0.923132122, -0.609704018, 0.821129858}}}},
      {"lion",
       {{{1.00497031, 0.677110374, -0.856353164},
         {0.54760623, -0.10861519, -0.909891248},
         {-0.404070288, -1.00466478, 0.253534853},
         {-0.995012581, -0.667044222, 0.880188882}}}},
      {"adagrad",
       {{{0.91316998, 0.608050942, -0.767614961},
         {0.509042919, -0.0904433951, -0.818909168},
         {-0.36254099, -0.912542582, 0.223712072},
         {-0.902018547, -0.588536501, 0.806946158}}}},
      {"lamb",
       {{{1.05226815, 0.702672303, -0.89816606},
         {0.591629624, -0.0785564855, -0.953363597},
         {-0.384214908, -1.05185556, 0.228153035},
         {-1.04144883, -0.636713922, 0.928046048}}}},
      {"adafactor",
       {{{1.01826918, 0.689495921, -0.847906291},
         {0.579468727, -0.086245276, -0.906198919},
         {-0.382952631, -1.02223408, 0.233654454},
         {-1.00334001, -0.646217227, 0.907273412}}}},
      {"muon",
       {{{1.03658569, 0.681603193, -0.88429445},
         {0.536832631, -0.117084838, -0.896671116},
         {-0.401739001, -1.03626037, 0.247694165},
         {-0.98134464, -0.654039264, 0.867411852}}}},
  };
  return kValues;
}

TEST(Optimizers, EqualTheReference) {
  for (const Case& one : cases()) {
    for (const UpdateLayout& layout : {UpdateLayout{}, UpdateLayout{3, 3, true}}) {
      // A factor as averaging and clipping make it must change nothing.
      const std::vector<at::Tensor> params = five_updates(one.options, layout, 0.25F);
      for (std::size_t i = 0; i < 4; ++i) {
        const std::int64_t numel = params[i].numel(), picks[] = {0, numel / 3, numel - 1};
        for (std::size_t pick = 0; pick < 3; ++pick)
          EXPECT_NEAR(params[i][picks[pick]].item<double>(), reference().at(one.name)[i][pick], 2e-6)
              << one.name << ", ranks " << layout.ranks << ", parameter " << i << ", pick " << pick;
      }
      EXPECT_EQ(params[4][7].item<float>(), formula(4, 7, 0)) << "a frozen parameter moved";
    }
  }
}

TEST(Optimizers, EveryLayoutGivesTheSameBits) {
  for (Case& one : cases()) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      one.options.state_dtype = dtype;
      const std::vector<at::Tensor> base = five_updates(one.options, {});
      for (const UpdateLayout& layout :
           {UpdateLayout{2, 0}, UpdateLayout{2, 1}, UpdateLayout{3, 2}, UpdateLayout{2, 3}, UpdateLayout{4, 3, true},
            UpdateLayout{7, 3}, UpdateLayout{4, 3, false, 2}, UpdateLayout{4, 3, true, 2}, UpdateLayout{4, 2, false, 2},
            UpdateLayout{8, 3, false, 4}, UpdateLayout{4, 3, false, 0, 2}, UpdateLayout{4, 3, true, 0, 2}}) {
        const std::vector<at::Tensor> params = five_updates(one.options, layout);
        for (std::size_t i = 0; i < params.size(); ++i)
          EXPECT_TRUE(at::equal(params[i], base[i]))
              << one.name << ", state " << short_name(dtype) << ", ranks " << layout.ranks << ", stage " << layout.stage
              << ", parameter " << i;
      }
    }
  }
}

TEST(Optimizers, StateInBf16StaysNearFp32) {
  for (Case& one : cases()) {
    const std::vector<at::Tensor> wide = five_updates(one.options, {});
    one.options.state_dtype = DType::kBF16;
    const std::vector<at::Tensor> narrow = five_updates(one.options, {2, 2});
    // Of the way that parameters went; Lion's sign may flip where the average is near 0.
    for (std::size_t i = 0; i < 4; ++i)
      EXPECT_LT((narrow[i] - wide[i]).abs().mean().item<double>(), 2e-3) << one.name << ", parameter " << i;
  }
}

TEST(Optimizers, AGroupsRateAndDecayAreItsOwn) {
  OptimizerPlan options;
  options.kind = OptimizerKind::kSgd;
  options.lr = 0.1;
  options.settings = {{0, 0}, {1, 0}, {2, 0.5}, {1, 0.5}, {}, {}};
  const std::vector<at::Tensor> params = five_updates(options, {2, 3});
  EXPECT_EQ(params[0][3].item<float>(), formula(0, 3, 0)) << "rate 0";
  // One plain update is p - lr (g + decay p); five of them from the formula.
  const auto after = [](int param, std::int64_t index, double lr, double decay) {
    double p = formula(param, index, 0);
    for (int update = 1; update <= 5; ++update)
      p -= lr * (0.1 * std::cos(0.37 * static_cast<double>(index) + param + 1.7 * update + 0.5) + decay * p);
    return p;
  };
  EXPECT_NEAR(params[1][5].item<double>(), after(1, 5, 0.1, 0), 1e-6);
  EXPECT_NEAR(params[2][5].item<double>(), after(2, 5, 0.2, 0.5), 1e-6);
  EXPECT_NEAR(params[3][5].item<double>(), after(3, 5, 0.1, 0.5), 1e-6);
}

// average = decay average + (1 - decay) p, from the first weights on.
TEST(Optimizers, KeepTheMovingAverageOfTheWeights) {
  OptimizerPlan options;
  options.kind = OptimizerKind::kSgd;
  options.lr = 0.1;
  options.ema_decay = 0.5;
  double p = formula(0, 0, 0), average = p;
  for (int update = 1; update <= 5; ++update) {
    p -= 0.1 * 0.1 * std::cos(1.7 * update + 0.5);
    average = 0.5 * average + 0.5 * p;
  }
  five_updates(options, {1, 0}, 1, [&](Optimizer& optimizer) {
    ASSERT_EQ(optimizer.tensors(0).size(), 1U);
    EXPECT_EQ(optimizer.tensors(0)[0].layout.kind, plan::TensorKind::kEma);
    EXPECT_NEAR(optimizer.tensors(0)[0].values[0].item<double>(), average, 1e-6);
  });
  five_updates(options, {3, 3}, 1, [&](Optimizer& optimizer) {
    EXPECT_NEAR(optimizer.gather_average(0)[0].item<double>(), average, 1e-6);
  });
}

TEST(Optimizers, FrozenBuffersHaveNoState) {
  five_updates(OptimizerPlan{}, {2, 1}, 1, [](Optimizer& optimizer) { EXPECT_TRUE(optimizer.tensors(2).empty()); });
}

// docs/optimizers.md: an element goes to its owner and comes back, 4 bytes each way, unless the owner has it.
TEST(MatrixExchange, MovesEightBytesForEachElementThatItsOwnerLacks) {
  OptimizerPlan options;
  options.kind = OptimizerKind::kMuon;
  const plan::RunPlan plan = update_plan(options, {2, 3});
  const std::vector<int> owners = plan::matrix_owners(plan);
  std::int64_t lacking = 0;
  for (const plan::FlatLayout& layout : plan.flats)
    for (const plan::ParamSlot& slot : layout.slots) {
      const int owner = owners[static_cast<std::size_t>(slot.param)];
      if (owner >= 0) lacking += slot.numel - plan::param_range(slot, layout.shard(owner)).size();
    }
  std::array<std::int64_t, 2> sent{};
  comm::run_ranks(2, [&](comm::Communicator& axis) {
    comm::RecordingCommunicator recorder(axis);
    MatrixExchange exchange(plan, recorder, true);
    exchange.run({.prepare = [](const Matrix&, plan::Range, const at::Tensor& part) { part.fill_(2); },
                  .transform = [](const Matrix&, const at::Tensor& whole) { whole.add_(1); },
                  .apply = [](const Matrix&, plan::Range,
                              const at::Tensor& part) { EXPECT_TRUE(part.eq(3).all().item<bool>()); }});
    for (const comm::OpRecord& record : recorder.records())
      if (record.op == comm::Op::kSend) sent[static_cast<std::size_t>(axis.rank())] += record.bytes;
  });
  EXPECT_GT(lacking, 0);
  EXPECT_EQ(sent[0] + sent[1], 8 * lacking);
}

TEST(Muon, NewtonSchulzBringsSingularValuesNearOne) {
  for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{12, 5}, {5, 12}, {1, 9}}) {
    at::Tensor matrix = at::arange(shape[0] * shape[1], at::kFloat).mul(0.7).sin().view(shape);
    const at::Tensor values = at::linalg_svdvals(newton_schulz(matrix));
    EXPECT_GT(values[0].item<float>(), 0.6F);
    EXPECT_LT(values[0].item<float>(), 1.3F);
  }
}

}  // namespace
}  // namespace intarsia::optim
