#pragma once

// A network namespace with a resolv.conf of its own, for programs that read it.

#include <functional>
#include <string>
#include <string_view>

namespace sluice::dns {

/// Port 53 of 127.0.0.1 is free there. Runs `body` in a child; true when that was.
[[nodiscard]] bool InOwnPlace(const std::string& resolv_conf, const std::function<bool()>& body);

/// Whether the command prints that; tells what it printed where not.
[[nodiscard]] bool Shows(const std::string& command, std::string_view wanted);

/// A C program that prints the addresses of the name it is given.
inline constexpr const char* kLookProgram = R"(
#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
int main(int argc, char** argv) {
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list;
  int error = getaddrinfo(argv[argc - 1], 0, &hints, &list);
  if (error) return printf("error: %s\n", gai_strerror(error)), 1;
  for (char text[64]; list; list = list->ai_next)
    if (!getnameinfo(list->ai_addr, list->ai_addrlen, text, sizeof text, 0, 0, NI_NUMERICHOST)) printf("%s\n", text);
})";

}  // namespace sluice::dns
