#pragma once

// Java's trust store with one certificate more. JKS, the format of Debian's cacerts: magic FEEDFEED, version 2, entries, and a
// SHA-1 over password and content. A store of another format (PKCS #12) is replaced by a JKS of the system's PEM roots.

#include <string>
#include <string_view>

#include "base/result.h"

namespace sluice::app {

/// Whether the bytes of a store are JKS, to which a certificate can be added without the system's roots.
[[nodiscard]] bool IsJavaKeystore(std::string_view store);

/// A store's bytes are these three, one after the other. It opens with the usual password, "changeit".
struct JavaKeystore {
  std::string head;
  std::string_view kept;  ///< of the store that was extended; nothing of it is copied, for it is large
  std::string tail;
};

/// `store`: the bytes of the host's cacerts, any format, to outlive what is returned. `bundle_pem`: the system's roots, used when
/// `store` is not JKS. `authority_pem`: the certificate to add.
[[nodiscard]] Result<JavaKeystore> ExtendJavaKeystore(std::string_view store, std::string_view bundle_pem,
                                                      std::string_view authority_pem);

}  // namespace sluice::app
