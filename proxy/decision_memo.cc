#include "proxy/decision_memo.h"

namespace sluice::proxy {
namespace {

// Each part behind its length, so that no two lists of parts read alike.
void AddText(std::string* key, std::string_view text) {
  const size_t size = text.size();
  key->append(reinterpret_cast<const char*>(&size), sizeof size);
  key->append(text);
}

template <class Number>
void AddNumber(std::string* key, Number number) {
  key->append(reinterpret_cast<const char*>(&number), sizeof number);
}

void AddExecutable(std::string* key, const policy::Executable& exe) {
  AddText(key, exe.path);
  AddNumber(key, exe.trusted);
  AddNumber(key, exe.sha256.has_value());
  if (exe.sha256) AddText(key, {reinterpret_cast<const char*>(exe.sha256->data()), exe.sha256->size()});
}

// All of a process that a rule can name.
void AddProcess(std::string* key, const policy::Process* process) {
  AddNumber(key, process != nullptr);
  if (process == nullptr) return;
  AddExecutable(key, process->exe);
  AddNumber(key, process->ancestors.size());
  for (const policy::Executable& ancestor : process->ancestors) AddExecutable(key, ancestor);
}

void AddAddress(std::string* key, const IpAddress& address) { AddNumber(key, address.bytes()); }

void AddConnection(std::string* key, const policy::ConnectQuery& query) {
  AddProcess(key, query.process);
  AddText(key, query.host);
  AddNumber(key, query.address.has_value());
  if (query.address) AddAddress(key, *query.address);
  AddNumber(key, query.remote);
  AddNumber(key, query.port);
  AddNumber(key, query.transport);
  AddNumber(key, query.host_addresses.size());
  for (const IpAddress& own : query.host_addresses) AddAddress(key, own);
}

void AddRequest(std::string* key, const policy::RequestQuery& query) {
  AddConnection(key, query.connection);
  AddNumber(key, query.scheme);
  AddText(key, query.method);
  // The canonical form, from which the rest of a target follows.
  AddText(key, query.target->path);
  AddNumber(key, query.target->has_query);
  AddText(key, query.target->query);
  AddNumber(key, query.headers.size());
  for (const auto& [name, value] : query.headers) {
    AddText(key, name);
    AddText(key, value);
  }
  AddNumber(key, query.upgrade);
}

}  // namespace

policy::ConnectDecision DecisionMemo::Decide(policy::ConnectQuery query) {
  query.now = now_;
  key_.clear();
  AddConnection(&key_, query);
  if (const auto found = connects_.find(std::string_view(key_)); found != connects_.end()) return found->second;
  ++asked_;
  const policy::ConnectDecision answer = snapshot_->DecideConnect(query);
  if (connects_.size() < kMaxMemoAnswers) connects_.emplace(key_, answer);
  return answer;
}

policy::Decision DecisionMemo::Decide(policy::RequestQuery query) {
  query.connection.now = now_;
  if (query.body != nullptr) {
    ++asked_;
    return snapshot_->DecideRequest(query);
  }
  key_.clear();
  AddRequest(&key_, query);
  if (const auto found = requests_.find(std::string_view(key_)); found != requests_.end()) return found->second;
  ++asked_;
  const policy::Decision answer = snapshot_->DecideRequest(query);
  if (requests_.size() < kMaxMemoAnswers) requests_.emplace(key_, answer);
  return answer;
}

}  // namespace sluice::proxy
