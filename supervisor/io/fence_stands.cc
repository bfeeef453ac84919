#include <utility>

#include "nft/io/session.h"
#include "supervisor/io/fence.h"

namespace sluice::supervisor {

Result<Fence::Standing> Fence::Stands() {
  const auto session = nft::Session::Open();
  if (!session) return std::unexpected(session.error());
  Standing standing = Standing::kNone;
  for (const auto& [family, name] :
       {std::pair(nft::Family::kInet, kFenceTable), std::pair(nft::Family::kNetdev, kFenceEgressTable)}) {
    const auto found = (*session)->Read(nft::Table{family, name, {}});
    if (!found) return std::unexpected(found.error());
    if (found->exists && found->owner != 0) return Standing::kHeld;
    if (found->exists) standing = Standing::kLeft;
  }
  return standing;
}

}  // namespace sluice::supervisor
