#include "proxy/body/lfs.h"

#include "proxy/body/json_body.h"

namespace sluice::proxy {

policy::BodyReading<policy::LfsOperation> ReadLfsBatch(std::string_view text) {
  const auto json = ReadJson(text);
  if (!json.readable()) return {{}, json.fault};
  const policy::JsonLeaf* operation = FindLeaf(json.items, "/operation");
  if (operation != nullptr && operation->type == policy::JsonLeaf::Type::kString) {
    if (operation->text == "download") return {{policy::LfsOperation::kDownload}, {}};
    if (operation->text == "upload") return {{policy::LfsOperation::kUpload}, {}};
  }
  return {{}, "the body is no git LFS batch request: its operation is neither download nor upload"};
}

}  // namespace sluice::proxy
