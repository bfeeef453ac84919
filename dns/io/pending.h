#pragma once

// A value that several coroutines of one io_context wait for, and one provides.

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

namespace sluice::dns {

template <class T>
class Pending {
 public:
  explicit Pending(boost::asio::io_context& context)
      : ready_(context, boost::asio::steady_timer::time_point::max()), grace_(context) {}

  void Set(T value) {
    if (value_) return;
    value_ = std::move(value);
    ready_.cancel();
    grace_.cancel();
  }
  [[nodiscard]] const std::optional<T>& value() const { return value_; }

  /// Returns once there is a value. The provider bounds the wait: it sets one by its own deadline, come what may.
  static boost::asio::awaitable<void> Wait(std::shared_ptr<Pending> self) {
    while (!self->value_) co_await self->ready_.async_wait(boost::asio::as_tuple(boost::asio::use_awaitable));
  }
  /// Returns after `grace` at the latest. A second waiter ends the wait of the first.
  static boost::asio::awaitable<void> WaitFor(std::shared_ptr<Pending> self, std::chrono::milliseconds grace) {
    if (self->value_) co_return;
    self->grace_.expires_after(grace);
    co_await self->grace_.async_wait(boost::asio::as_tuple(boost::asio::use_awaitable));
  }

 private:
  boost::asio::steady_timer ready_;
  boost::asio::steady_timer grace_;
  std::optional<T> value_;
};

}  // namespace sluice::dns
