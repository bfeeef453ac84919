// What one request costs in the pure parts: find its head, parse, frame, write it anew; and one chunk decoded and encoded.

#include <benchmark/benchmark.h>

#include <string>

#include "proxy/chunked.h"
#include "proxy/forward.h"
#include "proxy/http1.h"

namespace {

using namespace sluice::proxy;

constexpr std::string_view kRequest =
    "GET /repos/octo/hello/pulls?state=open&per_page=100 HTTP/1.1\r\nHost: api.github.com\r\nUser-Agent: octokit-core.js/5.0.0 "
    "Node.js/20.11\r\nAccept: application/vnd.github+json\r\nAuthorization: token 0123456789abcdef0123456789abcdef01234567\r\n"
    "Accept-Encoding: gzip, deflate, br\r\nX-GitHub-Api-Version: 2022-11-28\r\nConnection: keep-alive\r\n\r\n";

void BM_RequestHead(benchmark::State& state) {
  RequestHead head;
  Buffer out;
  std::string bytes;
  for (auto _ : state) {
    bytes = kRequest;
    size_t resume = 0;
    const auto end = FindHeadEnd(bytes, &resume);
    if (!end || ParseRequestHead({bytes.data(), *end}, &head)) state.SkipWithError("refused");
    const auto framing = RequestFraming(head);
    out.Clear();
    AppendRequestHead(&out, head, {"/repos/octo/hello/pulls?state=open&per_page=100", "api.github.com", *framing});
    benchmark::DoNotOptimize(out.view().data());
  }
}
BENCHMARK(BM_RequestHead);

void BM_ChunkedPiece(benchmark::State& state) {
  Buffer coded;
  AppendChunk(&coded, std::string(16 * 1024, 'x'));
  const std::string in(coded.view());
  ChunkedDecoder decoder;
  Buffer out;
  for (auto _ : state) {
    std::string_view rest = in;
    out.Clear();
    while (!rest.empty()) {
      const auto step = decoder.Next(rest);
      if (!step) state.SkipWithError("refused");
      AppendChunk(&out, step->data);
      rest.remove_prefix(step->consumed);
    }
    benchmark::DoNotOptimize(out.view().data());
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(in.size()));
}
BENCHMARK(BM_ChunkedPiece);

}  // namespace

BENCHMARK_MAIN();
