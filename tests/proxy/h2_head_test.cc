// HTTP/2 sections and the heads that HTTP/1.1 shares with them.

#include "proxy/h2_head.h"

#include <gtest/gtest.h>

#include "tests/proxy/h2_frames.h"

namespace sluice::proxy::testing {
namespace {

void Fill(H2Section* section, const FieldList& fields) {
  for (const auto& [name, value] : fields) section->Add(name, value);
}

FieldList Sent(const H2Output& output) {
  FieldList fields;
  for (const H2Field& field : output.fields()) fields.emplace_back(field.name, field.value);
  return fields;
}

struct RequestCase {
  FieldList fields;
  H2End end = H2End::kEndStream;
  uint16_t status = 0;
};

TEST(H2Head, HoldsRequestsToTheRules) {
  const FieldList get = GetFields("a.test");
  const auto with = [&](const FieldList& more) {
    FieldList fields = get;
    fields.insert(fields.end(), more.begin(), more.end());
    return fields;
  };
  const auto path = [](const std::string& text) { return GetFields("a.test", text); };
  FieldList many = get;
  for (size_t i = 0; i <= kMaxFields; ++i) many.emplace_back("x", "y");
  const RequestCase cases[] = {
      {get},
      {with({{"host", "a.test"}})},
      {with({{"host", "b.test"}}), H2End::kEndStream, 400},
      {with({{"host", "a.test"}, {"host", "a.test"}}), H2End::kEndStream, 400},
      {{{":method", "GET"}, {":scheme", "https"}, {":path", "/"}, {"host", "a.test"}}},
      {{{":method", "GET"}, {":scheme", "https"}, {":path", "/"}}, H2End::kEndStream, 400},
      {{{":method", "GET"}, {":scheme", "http"}, {":authority", "a.test"}, {":path", "/"}}, H2End::kEndStream, 400},
      {{{":method", "G T"}, {":scheme", "https"}, {":authority", "a.test"}, {":path", "/"}}, H2End::kEndStream, 400},
      {{{":method", "CONNECT"}, {":scheme", "https"}, {":authority", "a.test"}, {":path", "/"}}, H2End::kEndStream, 400},
      {path("x"), H2End::kEndStream, 400},
      {path("https://a.test/"), H2End::kEndStream, 400},
      {path("/a b"), H2End::kEndStream, 400},
      {path("/\xc3\xa9"), H2End::kEndStream, 400},
      {path("/" + std::string(kMaxTargetBytes, 'x')), H2End::kEndStream, 414},
      {with({{"content_length", "1"}}), H2End::kEndStream, 400},
      {with({{"Upper", "1"}}), H2End::kEndStream, 400},
      {with({{"x", "a\r\nb"}}), H2End::kEndStream, 400},
      {with({{"transfer-encoding", "chunked"}}), H2End::kEndStream, 400},
      {with({{"connection", "close"}}), H2End::kEndStream, 400},
      {with({{"http2-settings", ""}}), H2End::kEndStream, 400},
      {with({{"te", "trailers"}})},
      {with({{"te", "gzip"}}), H2End::kEndStream, 400},
      {with({{"content-length", "5"}}), H2End::kEndStream, 400},
      {with({{"content-length", "0"}})},
      {with({{"content-length", "5"}}), H2End::kOpen},
      {with({{"content-length", "5"}, {"content-length", "5"}}), H2End::kOpen, 400},
      {with({{"content-length", "+5"}}), H2End::kOpen, 400},
      {with({{"expect", "a miracle"}}), H2End::kOpen, 417},
      {with({{"x", std::string(kMaxHeadBytes, 'x')}}), H2End::kEndStream, 431},
      {many, H2End::kEndStream, 431},
  };
  for (const RequestCase& c : cases) {
    H2HeadStore store;
    Fill(&store.section, c.fields);
    RequestHead head;
    Framing framing;
    const Fault fault = ReadRequestSection(&store, c.end, "https", &head, &framing);
    EXPECT_EQ(fault.status, c.status) << c.fields.back().first << ": " << c.fields.back().second.substr(0, 40) << ": "
                                      << fault.why;
  }
}

TEST(H2Head, BecomesTheRequestThatHttp11Sends) {
  H2HeadStore store;
  Fill(&store.section, {{":method", "POST"},
                        {":scheme", "https"},
                        {":authority", "A.test"},
                        {":path", "/x"},
                        {"cookie", "a=1"},
                        {"te", "trailers"},
                        {"cookie", "b=2"},
                        {"proxy-authorization", "no"}});
  RequestHead head;
  Framing framing;
  ASSERT_FALSE(ReadRequestSection(&store, H2End::kOpen, "https", &head, &framing));
  EXPECT_EQ(head.host, "A.test");
  Buffer out;
  AppendRequestHead(&out, head, {"/x", "a.test", framing});
  EXPECT_EQ(out.view(),
            "POST /x HTTP/1.1\r\nhost: a.test\r\ncookie: a=1; b=2\r\nte: trailers\r\nconnection: te\r\ntransfer-encoding: "
            "chunked\r\n\r\n");
}

TEST(H2Head, MakesSectionsOfWhatHttp11Says) {
  std::string bytes =
      "POST /x HTTP/1.1\r\nHost: a.test\r\nX-A: 1\r\nConnection: x-b\r\nX-B: 2\r\nTE: trailers\r\nAuthorization: "
      "mine\r\nContent-Length: 3\r\n\r\n";
  RequestHead request;
  ASSERT_FALSE(ParseRequestHead({bytes.data(), bytes.size()}, &request));
  HeadEdits edits;
  edits.removed = {"authorization"};
  edits.added = {{"authorization", "Bearer s"}};
  H2Output output;
  WriteRequestSection(&output, request, {"/x", "a.test", *RequestFraming(request), &edits}, "https");
  EXPECT_EQ(Sent(output), (FieldList{{":method", "POST"},
                                     {":scheme", "https"},
                                     {":authority", "a.test"},
                                     {":path", "/x"},
                                     {"x-a", "1"},
                                     {"authorization", "Bearer s"},
                                     {"te", "trailers"},
                                     {"content-length", "3"}}));
  std::string answer =
      "HTTP/1.1 200 Fine\r\nServer: y\r\nConnection: close\r\nX-Sluice-Denied: d-1\r\nTransfer-Encoding: chunked\r\n\r\n";
  ResponseHead response;
  ASSERT_FALSE(ParseResponseHead({answer.data(), answer.size()}, &response));
  WriteResponseSection(&output, response, *ResponseFraming(response, "GET"));
  EXPECT_EQ(Sent(output), (FieldList{{":status", "200"}, {"server", "y"}}));
}

struct ResponseCase {
  FieldList fields;
  H2End end;
  std::string method;
  uint16_t fault;
  BodyKind kind;
};

TEST(H2Head, FramesResponses) {
  const ResponseCase cases[] = {
      {{{":status", "200"}}, H2End::kOpen, "GET", 0, BodyKind::kChunked},
      {{{":status", "200"}}, H2End::kEndStream, "GET", 0, BodyKind::kLength},
      {{{":status", "200"}, {"content-length", "4"}}, H2End::kOpen, "GET", 0, BodyKind::kLength},
      {{{":status", "200"}, {"content-length", "4"}}, H2End::kEndStream, "GET", 502, BodyKind::kNone},
      {{{":status", "200"}, {"content-length", "4"}}, H2End::kEndStream, "HEAD", 0, BodyKind::kNone},
      {{{":status", "204"}}, H2End::kEndStream, "GET", 0, BodyKind::kNone},
      {{{":status", "304"}, {"content-length", "4"}}, H2End::kEndStream, "GET", 0, BodyKind::kNone},
      {{{":status", "100"}}, H2End::kOpen, "GET", 0, BodyKind::kNone},
      {{{":status", "101"}}, H2End::kOpen, "GET", 502, BodyKind::kNone},
      {{{":status", "20"}}, H2End::kOpen, "GET", 502, BodyKind::kNone},
      {{{":status", "2x0"}}, H2End::kOpen, "GET", 502, BodyKind::kNone},
      {{{"x", "y"}}, H2End::kOpen, "GET", 502, BodyKind::kNone},
      {{{":status", "200"}, {"connection", "close"}}, H2End::kOpen, "GET", 502, BodyKind::kNone},
      {{{":status", "200"}, {":path", "/"}}, H2End::kOpen, "GET", 502, BodyKind::kNone},
  };
  for (const ResponseCase& c : cases) {
    H2HeadStore store;
    Fill(&store.section, c.fields);
    ResponseHead head;
    Framing framing;
    const Fault fault = ReadResponseSection(&store, c.end, c.method, &head, &framing);
    EXPECT_EQ(fault.status, c.fault) << c.fields[0].second << fault.why;
    if (!fault) EXPECT_EQ(framing.kind, c.kind) << c.fields[0].second;
  }
}

TEST(H2Head, TellsGrpcClientsInTheirOwnTerms) {
  Denial denial;
  denial.id = "d-3";
  denial.advice.suggest = "POST g.test/pkg.Svc/100%";
  RequestHead request;
  request.fields.push_back({"content-type", "application/grpc+proto", FieldId::kContentType, true});
  ASSERT_EQ(H2FormFor(request), H2DenialForm::kGrpc);
  H2Output output;
  WriteDenialSection(&output, denial, H2DenialForm::kGrpc, 0);
  EXPECT_EQ(Sent(output), (FieldList{{":status", "200"},
                                     {"content-type", "application/grpc"},
                                     {"grpc-status", "7"},
                                     {"grpc-message", "Egress denied: needs \"POST g.test/pkg.Svc/100%25\" (d-3)"},
                                     {"proxy-status", "sluice; error=http_request_denied; details=\"d-3\""},
                                     {"x-sluice-denied", "d-3"}}));
  request.fields[0].value = "application/grpc-web";
  EXPECT_EQ(H2FormFor(request), H2DenialForm::kJson);
}

}  // namespace
}  // namespace sluice::proxy::testing
