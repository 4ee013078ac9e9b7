#include "simulation/plants.h"

#include <algorithm>

#include "base/planted.h"
#include "simulation/job.h"

namespace pliant::sim {
namespace {

constexpr Plant kPlants[] = {
    {"newcomers-vote", "newcomers vote before they have the state"},
    {"same-epoch", "a planned change does not make a new epoch"},
    {"draft-at-once", "a newcomer takes up what it is given before the tensors have come"},
    {"switch-forgotten", "a step that is settled in a later view forgets the change that it decided"},
    {"view-time-limit", "a view that does not form within 30 s ends whoever waits", Script::Kind::long_evaluation},
    {"first-loop", "a newcomer trains in the first loop of its program, whichever the job is in",
     Script::Kind::two_loops},
    {"batch-at-once", "a batch that is set in mid-step changes the step", Script::Kind::batches},
    {"lease-recomputed", "records recompute the lease instead of noting the one that was taken"},
    {"adopt-anyway", "a step's change is adopted although the view has ended"},
    {"failure-is-finished", "a job whose state is lost is called finished"},
    {"unwritten-kept", "unwritten lines are not handed over with the state"},
    {"salvage-unrecorded", "records do not say who spoke for a dead worker"},
    {"result-dies", "a result is read from memory that went with its view"},
    {"commits-alone", "a worker commits an interrupted step that it has, whoever lacks it"},
    {"repeats-alone", "a worker repeats an interrupted step although all have it"},
    {"unused-lost", "samples of those who did not make it into a step never come back"},
    {"salvaged-return", "samples of a dead worker come back although somebody spoke for it"},
    {"dead-counted", "somebody speaks for a dead worker without its gradients"},
    {"dead-twice", "the gradients of a dead worker are added by everybody of its host"},
    {"never-fenced", "a promise is given without fencing the view"},
    {"proof-for-all-views", "a proof of death counts for views before the one in which the dead acted last"},
    {"suspicion-is-proof", "a connection that is lost proves a death"},
    {"stored-ignored", "a candidate forgets what others have stored", Script::Kind::measures},
    {"minority-decides", "a minority that lost the others goes on"},
    {"fallen-keeps-state", "a worker that was left behind comes back with the state that it had"},
    {"in-flight-switch", "a view changes by plan while reductions are in flight", Script::Kind::in_flight},
    {"break-leaves-rest", "what was submitted to a step that is left by break stays in flight",
     Script::Kind::left_by_break},
    {"lacking-ignored", "a plain reduction that somebody lacks counts as done", Script::Kind::in_flight},
    {"ledger-kept", "a newcomer keeps its own ledger"},
    {"absorbed-later", "a step is held to the view that came while tensor variances were added up",
     Script::Kind::measures},
    {"claimed-once", "a coordinator does not ask again for a promise that came too early", Script::Kind::grows},
    {"unreached-unsaid", "one newcomer that a member cannot reach keeps all others out", Script::Kind::grows},
    {"named-unstable", "a checkpoint gets its name before all have made its step"},
    {"killed-is-finished", "a worker that was killed between two loops counts as finished", Script::Kind::two_loops},
    {"unconfirmed", "between hosts a step is closed before all are known to have it"},
};

}  // namespace

std::span<const Plant> plants() { return kPlants; }

const Plant* plant_named(std::string_view name) {
  auto at = std::ranges::find(kPlants, name, &Plant::name);
  return at == std::end(kPlants) ? nullptr : &*at;
}

void put_in(const Plant* plant) { pliant::plant(plant ? plant->name : nullptr); }

std::optional<Found> find_plant(const Plant& plant, FleetOptions fleet, std::optional<Script::Kind> program) {
  auto chosen = program ? program : plant.program;
  auto run = [&](std::uint64_t seed) {
    put_in(&plant);
    auto failure = simulate_job({seed, false, chosen}).failure;
    put_in(nullptr);
    // Not if it fails without the mistake too.
    return failure.empty() || !simulate_job({seed, false, chosen}).failure.empty() ? std::string() : failure;
  };
  std::optional<Found> found;
  fleet.most = 1;
  run_fleet(fleet, run, [&](std::uint64_t seed, const std::string& failure) {
    found = Found{seed - fleet.first + 1, failure};
  });
  return found;
}

}  // namespace pliant::sim
