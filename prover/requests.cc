#include "prover/requests.h"

#include <algorithm>
#include <array>
#include <ranges>
#include <set>

#include "policy/layers.h"
#include "policy/operation.h"
#include "prover/request_bodies.h"
#include "prover/request_values.h"

namespace sluice::prover {

using policy::Rule;
using Part = InnerRules::Part;
using PartOf = std::pair<InnerId, Part>;

namespace {

// Until this many questions of paths for one rule all that differs is reported; after it, one gain is enough.
constexpr size_t kThorough = 64;

bool AllTextsIn(const std::vector<policy::Glob>& inner, const std::vector<policy::Glob>& outer) {
  return std::all_of(inner.begin(), inner.end(),
                     [&](const policy::Glob& g) { return std::find(outer.begin(), outer.end(), g) != outer.end(); });
}

// Whether the rules' texts alone show that every path of `inner` is one of `outer`.
bool PathsPlainlyCover(const Box& outer, const Box& inner) {
  if (outer.universal()) return true;
  const bool wide = IsDeny(outer.role);
  if (!wide && (inner.universal() || (inner.rule->encoded_slash && !outer.rule->encoded_slash) ||
                (inner.rule->path_params && !outer.rule->path_params)))
    return false;
  if (InnerRules::IsGitPart(outer.part)) {
    // Such a deny leaves out what it reads as LFS.
    if (wide && outer.rule->lfs && !InnerRules::IsLfsPart(outer.part)) return false;
    if (inner.universal() || outer.part != inner.part || outer.rule->verb != inner.rule->verb) return false;
    return outer.rule->paths.empty() || (!inner.rule->paths.empty() && AllTextsIn(inner.rule->paths, outer.rule->paths));
  }
  if (outer.rule->paths.empty()) return true;
  return !inner.universal() && !InnerRules::IsGitPart(inner.part) && !inner.rule->paths.empty() &&
         AllTextsIn(inner.rule->paths, outer.rule->paths);
}

}  // namespace

// One problem: the boxes, the elements of each dimension, and the walk over their products for one head allow at a time.
class RequestSearch {
 public:
  RequestSearch(Requests* owner, const RequestProblem& problem, std::vector<RequestGain>* out)
      : owner_(owner), budget_(owner->budget_), out_(out) {
    Collect(problem);
  }

  void Run() {
    dimensions_ = std::make_unique<RequestDimensions>(boxes_, names_, budget_);
    bodies_ = std::make_unique<BodyDimension>(boxes_, budget_);
    for (size_t i = 0; i < boxes_.size() && !budget_->exhausted(); ++i) {
      if (boxes_[i].role != Role::kHeadAllow) continue;
      asked_ = i;
      questions_ = 0;
      found_.clear();
      BoxSet all(boxes_.size());
      for (size_t b = 0; b < boxes_.size(); ++b)
        if (boxes_[b].role != Role::kHeadAllow || b == i) all.Set(b);
      Methods(all);
    }
  }

 private:
  // What has been chosen on the way down.
  struct Choice {
    const MethodElement* method = nullptr;
    const BodyElement* body = nullptr;
    std::vector<const LeavesElement*> leaves{};
    std::vector<const ValueElement*> headers{};
    QueryShape shape = QueryShape::kNone;
    std::vector<const ValueElement*> query{};
    OtherKey other_key = OtherKey::kNone;
  };

  void Collect(const RequestProblem& problem) {
    std::vector<std::pair<Role, const Rule*>> rules;
    const auto each = [&](auto f) {
      for (const InnerId id : problem.head_allows) f(Role::kHeadAllow, id);
      for (const InnerId id : problem.head_denies) f(Role::kHeadDeny, id);
      for (const InnerId id : problem.base_allows) f(Role::kBaseAllow, id);
      for (const InnerId id : problem.base_denies) f(Role::kBaseDeny, id);
      for (const InnerId id : problem.head_within) f(Role::kHeadWithin, id);
      for (const InnerId id : problem.head_also) f(Role::kHeadAlso, id);
      for (const InnerId id : problem.base_excepts) f(Role::kBaseExcept, id);
      for (const InnerId id : problem.base_weak) f(Role::kBaseWeak, id);
      for (const InnerId id : problem.base_keeps) f(Role::kBaseKeep, id);
      for (const InnerId id : problem.base_spares) f(Role::kBaseSpare, id);
      for (const InnerId id : problem.accepted) f(Role::kAccepted, id);
    };
    each([&](Role role, InnerId id) { rules.emplace_back(role, &owner_->rules_.rule(id)); });
    names_ = NamesOf(rules);
    within_ = !problem.head_within.empty();
    also_ = !problem.head_also.empty();
    each([&](Role role, InnerId id) {
      if (id == kUniversal) {
        boxes_.push_back({role, id});
      } else {
        AddBoxes(role, id, owner_->rules_.rule(id), names_, &boxes_);
      }
    });
    LinkTwins();
  }

  // The same box on the other side: an allow of the head that the base has too, a deny of the base that the head has too.
  void LinkTwins() {
    twins_.assign(boxes_.size(), kNoTwin);
    std::map<std::tuple<Role, InnerId, Part, std::vector<std::string>, std::string, Box::Sign, std::string>, size_t> places;
    const auto key = [](Role role, const Box& b) {
      return std::tuple{role, b.inner, b.part, b.header_names, b.override_name, b.sign, b.sign_name};
    };
    for (size_t i = 0; i < boxes_.size(); ++i) places.emplace(key(boxes_[i].role, boxes_[i]), i);
    for (size_t i = 0; i < boxes_.size(); ++i) {
      const Box& box = boxes_[i];
      if (box.role != Role::kHeadAllow && box.role != Role::kBaseDeny) continue;
      const auto at = places.find(key(box.role == Role::kHeadAllow ? Role::kBaseAllow : Role::kHeadDeny, box));
      if (at != places.end()) twins_[i] = at->second;
    }
  }

  // Whether the base has the allow asked about, and denies nothing here that the head does not.
  [[nodiscard]] bool SameOnBothSides(const BoxSet& alive) const {
    if (twins_[asked_] == kNoTwin || !alive.Has(twins_[asked_])) return false;
    for (size_t b = 0; b < boxes_.size(); ++b)
      if (Lacks(boxes_[b].role) && alive.Has(b) && (twins_[b] == kNoTwin || !alive.Has(twins_[b]))) return false;
    return true;
  }

  // Whether what the box covers is none of the base's.
  static bool Lacks(Role role) { return role == Role::kBaseDeny || role == Role::kBaseExcept || role == Role::kBaseWeak; }

  [[nodiscard]] bool Dead(const BoxSet& alive) const {
    return budget_->exhausted() || !alive.Has(asked_) || SameOnBothSides(alive) ||
           (within_ && !HasSome(Role::kHeadWithin, alive)) || (also_ && !HasSome(Role::kHeadAlso, alive));
  }
  [[nodiscard]] bool HasSome(Role role, const BoxSet& alive) const {
    for (size_t b = 0; b < boxes_.size(); ++b)
      if (boxes_[b].role == role && alive.Has(b)) return true;
    return false;
  }
  [[nodiscard]] bool Thorough() const { return questions_ < kThorough; }

  // Of two choices the one with fewer allows of the base, fewer denies of the head and more denies of the base is enough.
  [[nodiscard]] bool Dominates(const BoxSet& a, const BoxSet& b) const {
    for (size_t i = 0; i < boxes_.size(); ++i) {
      const Role role = boxes_[i].role;
      const bool more_is_better = Lacks(role) || role == Role::kHeadWithin || role == Role::kHeadAlso;
      if (more_is_better ? b.Has(i) && !a.Has(i) : a.Has(i) && !b.Has(i)) return false;
    }
    return true;
  }

  // Calls f(element, boxes alive with it) for the elements that differ, as many as are needed.
  template <class Elements, class F>
  void ForEachElement(const Elements& elements, const BoxSet& alive, F f) {
    std::vector<BoxSet> seen;
    for (const auto& element : elements) {
      BoxSet next = alive & element.boxes;
      if (!budget_->Spend(1 + boxes_.size() / 16)) return;
      if (!next.Has(asked_)) continue;
      const bool known = std::any_of(seen.begin(), seen.end(), [&](const BoxSet& other) {
        return other == next || (!Thorough() && Dominates(other, next));
      });
      if (known) continue;
      f(element, next);
      seen.push_back(std::move(next));
    }
  }

  void Methods(const BoxSet& alive) {
    if (Dead(alive)) return;
    ForEachElement(dimensions_->methods(), alive, [&](const MethodElement& element, const BoxSet& next) {
      Choice choice;
      choice.method = &element;
      Bodies(next, choice);
    });
  }

  void Bodies(const BoxSet& alive, const Choice& choice) {
    if (Dead(alive)) return;
    // What says most first.
    for (const auto& elements : bodies_->elements() | std::views::reverse) {
      ForEachElement(elements, alive, [&](const BodyElement& element, const BoxSet& next) {
        Choice more = choice;
        more.body = &element;
        Leaves(next, more);
      });
    }
  }

  // The values at JSON pointers, group by group.
  void Leaves(const BoxSet& alive, const Choice& choice) {
    if (Dead(alive)) return;
    const auto& groups = bodies_->leaves(*choice.body);
    if (choice.leaves.size() == groups.size() || (!choice.body->json && !choice.body->message)) {
      Headers(alive, choice);
      return;
    }
    ForEachElement(groups[choice.leaves.size()], alive, [&](const LeavesElement& element, const BoxSet& next) {
      Choice more = choice;
      more.leaves.push_back(&element);
      Leaves(next, more);
    });
  }

  void Headers(const BoxSet& alive, const Choice& choice) {
    if (Dead(alive)) return;
    if (choice.headers.size() == dimensions_->headers().size()) {
      Shapes(alive, choice);
      return;
    }
    ForEachElement(dimensions_->headers()[choice.headers.size()], alive, [&](const ValueElement& element, const BoxSet& next) {
      Choice more = choice;
      more.headers.push_back(&element);
      Headers(next, more);
    });
  }

  // A GraphQL operation by GET stands in the URL, and nowhere else.
  static bool StandsInUrl(const Choice& choice) {
    return choice.method->method == "GET" && choice.body->body.kind == WitnessBody::Kind::kGraphql;
  }

  void Shapes(const BoxSet& alive, const Choice& choice) {
    for (const QueryShape shape : dimensions_->shapes()) {
      if (StandsInUrl(choice) && shape != QueryShape::kPairs) continue;
      Choice more = choice;
      more.shape = shape;
      BoxSet next = alive & dimensions_->ShapeBoxes(shape);
      if (shape == QueryShape::kPairs) {
        QueryKeys(next, more);
        continue;
      }
      for (const auto& elements : dimensions_->query()) {
        const ValueElement* element = &elements.front();  // absent
        if (shape != QueryShape::kNone && shape != QueryShape::kBare && element->key == "service")
          element = dimensions_->ServiceElement(shape);
        next = next & element->boxes;
        more.query.push_back(element);
      }
      Leaf(next, more);
    }
  }

  void QueryKeys(const BoxSet& alive, const Choice& choice) {
    if (Dead(alive)) return;
    if (choice.query.size() < dimensions_->query().size()) {
      const auto go = [&](const ValueElement& element, const BoxSet& next) {
        Choice more = choice;
        more.query.push_back(&element);
        QueryKeys(next, more);
      };
      const auto& elements = dimensions_->query()[choice.query.size()];
      if (!StandsInUrl(choice) || elements.front().key != "query") {
        ForEachElement(elements, alive, go);
        return;
      }
      std::vector<ValueElement> once = elements;
      std::erase_if(once, [](const ValueElement& e) { return e.values.size() != 1; });
      ForEachElement(once, alive, go);
      return;
    }
    const bool some =
        std::any_of(choice.query.begin(), choice.query.end(), [](const ValueElement* e) { return !e->values.empty(); });
    if (some) Leaf(alive, choice);
    const BoxSet other = alive & dimensions_->OtherKeyBoxes(OtherKey::kPlain);
    Choice more = choice;
    more.other_key = OtherKey::kPlain;
    if (!some || other != alive) Leaf(other, more);
    const BoxSet semicolon = alive & dimensions_->OtherKeyBoxes(OtherKey::kSemicolon);
    if (semicolon == other) return;
    more.other_key = OtherKey::kSemicolon;
    Leaf(semicolon, more);
  }

  [[nodiscard]] bool PlainlyCovers(const Box& outer, const Box& inner) const {
    return !owner_->rules_.IsBounded(outer.inner) && PathsPlainlyCover(outer, inner);
  }

  void Leaf(const BoxSet& alive, const Choice& choice) {
    if (Dead(alive)) return;
    if (!found_.insert(LeafKey(alive, choice)).second) return;
    const Box& asked = boxes_[asked_];
    std::vector<PartOf> outside;  // of all questions
    std::vector<PartOf> base;
    std::vector<PartOf> spares;
    std::vector<PartOf> keeps;
    std::vector<PartOf> within;
    std::vector<PartOf> also;
    const bool nothing = choice.body->body.PushesNothing();
    std::vector<size_t> readers;  // of pushes: allows of the base
    bool covered = false;
    bool also_covered = !also_;
    for (size_t b = 0; b < boxes_.size(); ++b) {
      if (!alive.Has(b) || b == asked_) continue;
      const Box& box = boxes_[b];
      const PartOf part{box.inner, box.part};
      // A deny that looks for commands finds none, but no push at all is read for an allow that it takes all from.
      if (nothing && IsDeny(box.role) && ReadsPush(box) && !(box.role == Role::kHeadDeny && Kills(box, asked))) continue;
      if (nothing && box.role == Role::kBaseAllow && ReadsPush(box)) {
        readers.push_back(b);
        continue;
      }
      if (box.role == Role::kHeadDeny || box.role == Role::kAccepted) {
        if (PlainlyCovers(box, asked)) return;
        outside.push_back(part);
      } else if (box.role == Role::kBaseAllow) {
        covered |= PlainlyCovers(box, asked);
        base.push_back(part);
      } else if (box.role == Role::kBaseSpare) {
        spares.push_back(part);
      } else if (box.role == Role::kBaseKeep) {
        keeps.push_back(part);
      } else if (box.role == Role::kHeadWithin) {
        within.push_back(part);
      } else if (box.role == Role::kHeadAlso) {
        also_covered |= PlainlyCovers(box, asked);
        also.push_back(part);
      }
    }
    const auto ask = [&](std::vector<PartOf> inside, const std::vector<PartOf>& more) {
      inside.emplace_back(asked.inner, asked.part);
      std::vector<PartOf> all = outside;
      all.insert(all.end(), more.begin(), more.end());
      std::vector<std::vector<PartOf>> insides{std::move(inside)};
      if (within_) insides = EachWith(insides, within);
      if (!also_covered) insides = EachWith(insides, also);
      for (std::vector<PartOf>& each : insides) Ask(std::move(each), all, choice);
    };
    if (!covered)
      for (auto& [inside, more] : OutsideEach(readers, alive, base)) ask(std::move(inside), more);
    for (size_t b = 0; b < boxes_.size(); ++b) {
      const Box& box = boxes_[b];
      if (!alive.Has(b) || !Lacks(box.role)) continue;
      if (nothing && IsDeny(box.role) && ReadsPush(box)) continue;
      if (twins_[b] != kNoTwin && alive.Has(twins_[b])) continue;
      std::vector<PartOf> more;
      if (box.role != Role::kBaseDeny) more = spares;
      if (box.role == Role::kBaseWeak) more.insert(more.end(), keeps.begin(), keeps.end());
      ask({{box.inner, box.part}}, more);
    }
  }

  static bool ReadsPush(const Box& box) { return box.reading == policy::kBodyPush; }
  // As BodyRules::IsDead has it.
  static bool Kills(const Box& deny, const Box& allow) {
    return ReadsPush(deny) && ReadsPush(allow) && policy::DenyCoversAllow(*deny.rule, *allow.rule, policy::kBodyPush);
  }

  // The ways in which none of the base's allows of pushes gives a push of nothing: the path is in none of them, or where a deny
  // kills it. Each with what the path is inside and outside of.
  [[nodiscard]] std::vector<std::pair<std::vector<PartOf>, std::vector<PartOf>>> OutsideEach(const std::vector<size_t>& readers,
                                                                                             const BoxSet& alive,
                                                                                             const std::vector<PartOf>& base) {
    std::vector<std::pair<std::vector<PartOf>, std::vector<PartOf>>> ways{{{}, base}};
    for (const size_t reader : readers) {
      auto longer = ways;
      for (auto& [inside, outside] : longer) outside.emplace_back(boxes_[reader].inner, boxes_[reader].part);
      for (size_t b = 0; b < boxes_.size(); ++b) {
        if (!alive.Has(b) || boxes_[b].role != Role::kBaseDeny || !Kills(boxes_[b], boxes_[reader])) continue;
        if (!budget_->Spend(1 + ways.size())) return {};
        for (const auto& way : ways) {
          longer.push_back(way);
          longer.back().first.emplace_back(boxes_[b].inner, boxes_[b].part);
        }
      }
      ways = std::move(longer);
    }
    return ways;
  }

  // Each list with each of the others at its end.
  static std::vector<std::vector<PartOf>> EachWith(const std::vector<std::vector<PartOf>>& lists,
                                                   const std::vector<PartOf>& others) {
    std::vector<std::vector<PartOf>> longer;
    for (const std::vector<PartOf>& list : lists) {
      for (const PartOf& other : others) {
        longer.push_back(list);
        longer.back().push_back(other);
      }
    }
    return longer;
  }

  // Gains that differ by nothing that is reported need not be looked for twice.
  using Key = std::tuple<const MethodElement*, bool, BoxSet>;
  [[nodiscard]] Key LeafKey(const BoxSet& alive, const Choice& choice) const {
    return {choice.method, choice.body->body.PushesNothing(), alive};
  }

  void Ask(std::vector<PartOf> inside, std::vector<PartOf> outside, const Choice& choice) {
    ++questions_;
    const Box& asked = boxes_[asked_];
    const bool slash = asked.universal() || asked.rule->encoded_slash;
    const bool params = asked.universal() || asked.rule->path_params;
    const auto path = owner_->Path(inside, outside, slash, params);
    if (!path) return;
    RequestGain gain;
    gain.allow = asked.inner;
    gain.method = choice.method->method;
    gain.upgrade = choice.method->upgrade;
    gain.body = BodyOf(choice);
    gain.methods = choice.method->all;
    gain.path = *path;
    for (size_t h = 0; h < choice.headers.size(); ++h)
      for (const std::string& value : choice.headers[h]->values) gain.headers.emplace_back(choice.headers[h]->key, value);
    gain.has_query = choice.shape != QueryShape::kNone;
    // A GraphQL operation in the URL.
    std::string document;
    if (choice.method->method == "GET" && gain.body.kind == WitnessBody::Kind::kGraphql)
      document = GraphqlText(gain.body.graphql);
    gain.query = dimensions_->QueryText(choice.shape, choice.query, choice.other_key, document);
    out_->push_back(std::move(gain));
  }

  static WitnessBody BodyOf(const Choice& choice) {
    WitnessBody body = choice.body->body;
    for (const LeavesElement* element : choice.leaves) {
      if (choice.body->json) body.json->insert(body.json->end(), element->leaves.begin(), element->leaves.end());
      if (choice.body->message) body.rpc.message.insert(body.rpc.message.end(), element->leaves.begin(), element->leaves.end());
    }
    return body;
  }

  static constexpr size_t kNoTwin = SIZE_MAX;
  Requests* owner_;
  Budget* budget_;
  std::vector<RequestGain>* out_;
  std::vector<Box> boxes_;
  std::vector<size_t> twins_;
  Names names_;
  std::unique_ptr<RequestDimensions> dimensions_;
  std::unique_ptr<BodyDimension> bodies_;
  bool within_ = false;  ///< only what some kHeadWithin covers is asked about
  bool also_ = false;    ///< the same of kHeadAlso
  size_t asked_ = 0;
  size_t questions_ = 0;
  std::set<Key> found_;
};

std::optional<std::string> Requests::Path(const std::vector<PartOf>& inside, const std::vector<PartOf>& outside,
                                          bool encoded_slash, bool path_params) {
  PathNumbers numbers;
  PathQuestion question;
  question.encoded_slash = encoded_slash;
  question.path_params = path_params;
  for (const auto& [id, part] : inside)
    if (numbers.inside.insert(rules_.PathsNumber(id, part)).second) question.inside.push_back(&rules_.Paths(id, part));
  for (const auto& [id, part] : outside) {
    const uint32_t number = rules_.PathsNumber(id, part);
    if (numbers.inside.contains(number)) return std::nullopt;
    if (numbers.outside.insert(number).second) question.outside.push_back(&rules_.Paths(id, part));
  }
  auto& known = paths_[{encoded_slash, path_params}];
  if (const auto at = known.found.find(numbers); at != known.found.end()) return at->second;
  // Nothing is left of what was nothing with fewer patterns.
  if (!budget_->Spend(1 + known.empty.size() / 16)) return std::nullopt;
  const bool within_empty = std::any_of(known.empty.begin(), known.empty.end(), [&](const PathNumbers& less) {
    return std::ranges::includes(numbers.outside, less.outside) && std::ranges::includes(numbers.inside, less.inside);
  });
  if (within_empty) return std::nullopt;
  auto path = ShortestPath(question, budget_);
  if (budget_->exhausted()) return std::nullopt;
  if (!path) {
    std::erase_if(known.empty, [&](const PathNumbers& more) {
      return std::ranges::includes(more.outside, numbers.outside) && std::ranges::includes(more.inside, numbers.inside);
    });
    known.empty.push_back(std::move(numbers));
    return std::nullopt;
  }
  known.found.emplace(std::move(numbers), *path);
  return path;
}

const std::vector<RequestGain>& Requests::Solve(const RequestProblem& problem) {
  const auto [at, fresh] = solved_.try_emplace(problem);
  if (fresh && !problem.head_allows.empty() && !budget_->exhausted()) RequestSearch(this, problem, &at->second).Run();
  return at->second;
}

}  // namespace sluice::prover
