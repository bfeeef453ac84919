#pragma once

// sd_notify(3) without its library: one datagram to $NOTIFY_SOCKET.

#include <string_view>

namespace sluice::app {

/// "READY=1", "STOPPING=1", "RELOADING=1". True: it was sent; false where nobody waits for it.
bool NotifyService(std::string_view state);
/// "RELOADING=1" with the time that a service of Type=notify-reload needs beside it; "READY=1" follows when it is done.
bool NotifyReloading();

}  // namespace sluice::app
