// A program linked statically against musl: its resolver sends from a UDP socket it never connects.
// static_fetch HOST PATH: resolves, then GETs http://HOST/PATH. Prints the answer, or the failed step and its error.
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int argc, char** argv) {
  if (argc != 3) return 64;
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
  const int status = getaddrinfo(argv[1], "80", &hints, &found);
  if (status != 0) {
    printf("lookup: %s\n", gai_strerror(status));
    return 2;
  }
  const int fd = socket(found->ai_family, SOCK_STREAM, 0);
  if (connect(fd, found->ai_addr, found->ai_addrlen) != 0) {
    printf("connect: %s\n", strerror(errno));
    return 3;
  }
  char buffer[4096];
  const int size = snprintf(buffer, sizeof buffer, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", argv[2], argv[1]);
  if (write(fd, buffer, (size_t)size) != size) return 4;
  for (ssize_t got; (got = read(fd, buffer, sizeof buffer)) > 0;) fwrite(buffer, 1, (size_t)got, stdout);
  freeaddrinfo(found);
  return 0;
}
