#pragma once

// A host of its own for the tests: in a private mount namespace, /opt is theirs to fill.

namespace sluice::supervisor {

/// Before the user is changed. In /opt afterwards: `service` and `mounted/service` (another mount), folders everybody may write
/// to; `secret` (0600), `group` (0640), `closed/inside` (in a 0700 folder), `mounted/secret`, all of the caller; `over`
/// ("above" is mounted on "below") and `covered` (0600, mounted on what everybody may read). With SLUICE_TEST_LOCKED these mounts
/// are locked to each other, so that root sees no folder without them; with SLUICE_TEST_CROWDED there are more files, too, than
/// are shown one by one, so that the tree cannot be shielded.
[[nodiscard]] bool MakeHostTrees();

}  // namespace sluice::supervisor
