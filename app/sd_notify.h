#pragma once

// sd_notify(3) without its library: one datagram to $NOTIFY_SOCKET.

#include <string_view>

namespace sluice::app {

/// "READY=1", "STOPPING=1", "RELOADING=1". True: it was sent; false where nobody waits for it.
bool NotifyService(std::string_view state);

}  // namespace sluice::app
