// A resolver of its own, as Go's and many embedded ones: a UDP socket that is never connected, sendmsg and recvfrom, A and AAAA
// asked at once from one socket. unconnected_lookup SERVER NAME: prints "rcode N answers N" for each of the two.
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static size_t Question(uint8_t* out, uint16_t id, const char* name, uint16_t type) {
  const uint8_t head[12] = {(uint8_t)(id >> 8), (uint8_t)id, 1, 0, 0, 1};
  memcpy(out, head, sizeof head);
  size_t at = sizeof head;
  while (*name) {
    const size_t size = strcspn(name, ".");
    out[at++] = (uint8_t)size;
    memcpy(out + at, name, size);
    at += size;
    name += size + (name[size] == '.');
  }
  const uint8_t tail[5] = {0, (uint8_t)(type >> 8), (uint8_t)type, 0, 1};
  memcpy(out + at, tail, sizeof tail);
  return at + sizeof tail;
}

int main(int argc, char** argv) {
  if (argc != 3) return 64;
  struct sockaddr_in server = {.sin_family = AF_INET, .sin_port = htons(53)};
  inet_pton(AF_INET, argv[1], &server.sin_addr);
  const int fd = socket(AF_INET, SOCK_DGRAM, 0);
  const uint16_t types[2] = {1, 28};
  for (int i = 0; i < 2; i++) {
    uint8_t query[300];
    struct iovec part = {query, Question(query, (uint16_t)(0x4200 + i), argv[2], types[i])};
    struct msghdr message = {.msg_name = &server, .msg_namelen = sizeof server, .msg_iov = &part, .msg_iovlen = 1};
    if (sendmsg(fd, &message, 0) < 0) {
      printf("send: %s\n", strerror(errno));
      return 3;
    }
  }
  for (int i = 0; i < 2; i++) {
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    if (poll(&ready, 1, 5000) != 1) {
      printf("no answer\n");
      return 2;
    }
    uint8_t answer[1500];
    struct sockaddr_in from;
    socklen_t size = sizeof from;
    const ssize_t got = recvfrom(fd, answer, sizeof answer, 0, (struct sockaddr*)&from, &size);
    if (got < 12 || from.sin_addr.s_addr != server.sin_addr.s_addr || from.sin_port != server.sin_port) {
      printf("an answer from elsewhere\n");
      return 4;
    }
    printf("id %02x%02x rcode %d answers %d\n", answer[0], answer[1], answer[3] & 15, answer[6] << 8 | answer[7]);
  }
  return 0;
}
