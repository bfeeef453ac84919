#pragma once

// Our addresses as Asio's.

#include <boost/asio/ip/address.hpp>

#include "base/ip.h"

namespace sluice::dns {

inline boost::asio::ip::address ToAsio(const IpAddress& address) {
  if (address.is_v4()) return boost::asio::ip::address_v4(address.v4());
  return boost::asio::ip::address_v6(address.bytes());
}

}  // namespace sluice::dns
