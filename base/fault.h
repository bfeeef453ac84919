#pragma once

// Makes system calls of the decision path fail on purpose, to see what becomes of everything else. SLUICE_FAULT in the
// environment says which: POINT:ERRNO[:COUNT[:SKIP]], several with commas between them. COUNT: how often it fails (without it
// always); SKIP: how often it works before. The first failure of each is told on standard error: "fault POINT ERRNO". Only in
// builds with SLUICE_FAULTS=ON, as `dev` is and `release` is not: elsewhere nothing of it is left.
//
//   const ssize_t n = Faulty("dns.receive", [&] { return recv(fd, buffer, size, 0); });
//
// A point's name stands once in the code, and fault_test.py or fault_service_test.py of tests/e2e has a case for each.
// tests/house/fault_points_test.py knows which calls are at none, and why.

#include <concepts>
#include <utility>

namespace sluice {

#ifdef SLUICE_FAULTS
/// Whether this call of the point is to fail; errno is set then. Any thread.
[[nodiscard]] bool FaultAt(const char* point);

inline namespace with_faults {
/// The call's own answer, or -1 and errno. `call` returns a signed integer, as system calls do.
template <class Call>
auto Faulty(const char* point, Call&& call) -> decltype(call()) {
  static_assert(std::signed_integral<decltype(call())>);
  if (FaultAt(point)) return -1;
  return std::forward<Call>(call)();
}
}  // namespace with_faults
#else
inline namespace without_faults {
template <class Call>
auto Faulty(const char*, Call&& call) -> decltype(call()) {
  static_assert(std::signed_integral<decltype(call())>);
  return std::forward<Call>(call)();
}
}  // namespace without_faults
#endif

}  // namespace sluice
