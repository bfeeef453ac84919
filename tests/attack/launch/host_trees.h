#pragma once

// A host of its own for the tests: in a private mount namespace, /opt is theirs to fill.

namespace sluice::supervisor {

/// Before the user is changed. In /opt afterwards: `service` and `mounted/service` (another mount), folders everybody may write
/// to; `secret` (0600), `group` (0640), `closed/inside` (in a 0700 folder), `mounted/secret`, all of the caller. With
/// SLUICE_TEST_CROWDED more files than are shown one by one, so that the tree cannot be shielded.
[[nodiscard]] bool MakeHostTrees();

}  // namespace sluice::supervisor
