#include "tests/proxy/h2_peer.h"

#include <algorithm>
#include <set>

namespace sluice::proxy::testing {
namespace {

FieldList Copy(const H2Section& section) {
  FieldList fields;
  for (const H2Field& field : section.Fields()) fields.emplace_back(field.name, field.value);
  return fields;
}

H2Output Output(const FieldList& fields) {
  H2Output output;
  output.Reset(0);
  for (const auto& [name, value] : fields) output.Add(name, value);
  return output;
}

}  // namespace

std::string H2Message::Field(const std::string& name) const {
  for (const auto& [key, value] : head)
    if (key == name) return value;
  return {};
}

void H2Talker::OnHead(int32_t id, H2Section& section, H2End /*end*/) {
  FieldList fields = Copy(section);
  const bool interim = !fields.empty() && fields[0].first == ":status" && fields[0].second.starts_with('1');
  if (interim) {
    messages[id].interims.push_back(std::move(fields));
  } else {
    messages[id].head = std::move(fields);
  }
}

void H2Talker::OnData(int32_t id, std::string_view bytes) {
  messages[id].body += bytes;
  if (consume) session.Consume(id, bytes.size());
}

H2Listener::Piece H2Talker::ReadBody(int32_t id, std::span<char> room) {
  Outgoing& out = outgoing_[id];
  const size_t n = std::min(room.size(), out.bytes.size() - out.sent);
  std::copy_n(out.bytes.data() + out.sent, n, room.data());
  out.sent += n;
  const bool last = out.last && out.sent == out.bytes.size();
  return {n, last, last && !out.trailer_lines.empty() ? &out.trailer_lines : nullptr};
}

void H2Talker::Send() {
  Buffer out;
  for (;;) {
    (void)session.Write(&out);
    if (out.empty() || !peer_.Write(out.view())) return;
    out.Clear();
  }
}

bool H2Talker::Turn() {
  Send();
  const std::string bytes = peer_.ReadSome();
  if (bytes.empty()) return false;
  (void)session.Feed(bytes, SteadyTime{std::chrono::seconds(1)});
  Send();
  return true;
}

bool H2Talker::Until(const std::function<bool()>& done) {
  Send();
  while (!done())
    if (!Turn()) return done();
  return true;
}

void H2Talker::Say(int32_t stream, std::string_view bytes, bool last, std::string trailer_lines) {
  Outgoing& out = outgoing_[stream];
  out.bytes += bytes;
  out.last = last;
  out.trailer_lines = std::move(trailer_lines);
  session.Resume(stream);
  Send();
}

int32_t H2Client::Start(const FieldList& fields, Body body) {
  const int32_t id = session.Request(Output(fields), body == Body::kNone ? H2End::kEndStream : H2End::kOpen);
  Send();
  return id;
}

H2Message H2Client::Do(const FieldList& fields, std::string_view body) {
  const int32_t id = Start(fields, body.empty() ? Body::kNone : Body::kOpen);
  if (!body.empty()) Say(id, body, true);
  Until([&] { return messages[id].ended || messages[id].closed; });
  return messages[id];
}

void ServeH2(Peer peer, const std::function<H2Answer(const H2Message&)>& handle) {
  H2Talker talker(std::move(peer), H2Role::kServer);
  std::set<int32_t> answered;
  while (talker.Turn()) {
    for (auto& [id, message] : talker.messages) {
      if (!message.ended || answered.count(id) != 0) continue;
      answered.insert(id);
      const H2Answer answer = handle(message);
      talker.session.Respond(id, Output(answer.head),
                             answer.body.empty() && answer.trailer_lines.empty() ? H2End::kEndStream : H2End::kOpen);
      if (!answer.body.empty() || !answer.trailer_lines.empty()) talker.Say(id, answer.body, true, answer.trailer_lines);
    }
    talker.Send();
  }
}

H2ByHand::H2ByHand(Peer peer, const std::vector<std::pair<uint16_t, uint32_t>>& settings) : peer_(std::move(peer)) {
  peer_.Write(SettingsFrame(settings));
  peer_.ReadExactly(kH2Preface.size());
}

bool H2ByHand::Until(int type) {
  for (;;) {
    while (!heard_.empty()) {
      const SeenFrame frame = std::move(heard_.front());
      heard_.pop_front();
      if (frame.type == kSettings && (frame.flags & kAck) == 0) peer_.Write(Frame(kSettings, kAck, 0, ""));
      if (frame.type == type) return true;
    }
    const std::string more = peer_.ReadSome();
    if (more.empty()) return false;
    bytes_ += more;
    for (SeenFrame& frame : TakeFrames(&bytes_)) heard_.push_back(std::move(frame));
  }
}

H2Answer EchoH2(const H2Message& request) {
  return {
      {{":status", "200"}, {"x-origin", "h2"}}, request.Field(":method") + " " + request.Field(":path") + "|" + request.body, ""};
}

}  // namespace sluice::proxy::testing
