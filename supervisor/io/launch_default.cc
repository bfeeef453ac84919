#include <utility>

#include "supervisor/io/launch.h"
#include "supervisor/io/prepared_launch.h"
#include "supervisor/seccomp_filter.h"

namespace sluice::supervisor {

Result<std::unique_ptr<Workload>> Launch(const LaunchSpec& spec, const Capture& capture) {
  return LaunchFiltered(spec, capture, BuildSeccompFilter(spec.own_namespaces));
}

Result<std::unique_ptr<Workload>> BeginLaunch(const LaunchSpec& spec, const Capture& capture) {
  return BeginFilteredLaunch(spec, capture, BuildSeccompFilter(spec.own_namespaces));
}

Result<std::unique_ptr<Workload>> BeginLaunch(PreparedLaunch prepared, const Capture& capture) {
  const auto filter = BuildSeccompFilter(prepared.spec.own_namespaces);
  return BeginFilteredLaunch(std::move(prepared), capture, filter);
}

}  // namespace sluice::supervisor
