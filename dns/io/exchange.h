#pragma once

// One question to one server: by UDP, then by TCP where UDP will not do.

#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <cstdint>
#include <vector>

#include "base/ip.h"
#include "base/result.h"
#include "dns/message.h"

namespace sluice::dns {

struct UpstreamAnswer {
  Message message;
  std::vector<uint8_t> wire;
};

/// Any rcode is an answer. kTimeout at the deadline; kIo where the server could not be reached.
boost::asio::awaitable<Result<UpstreamAnswer>> AskServer(Endpoint server, Question question,
                                                         std::chrono::steady_clock::time_point deadline);

}  // namespace sluice::dns
