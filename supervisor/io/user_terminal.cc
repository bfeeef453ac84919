#include "supervisor/io/user_terminal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <csignal>

namespace sluice::supervisor {

UserTerminal::UserTerminal(const std::array<StandardKind, 3>& kinds) : types_(kinds[0] == StandardKind::kTerminal) {
  for (const int fd : {0, 2, 1})
    if (kinds[static_cast<size_t>(fd)] == StandardKind::kTerminal) shown_ = fd;
  // An open file of our own: making the shared one non-blocking would confuse the shell that started us.
  output_ = UniqueFd(::open(fmt::format("/proc/self/fd/{}", shown_).c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
}

void UserTerminal::CopyTo(int master) const {
  CopySizeTo(master);
  termios settings{};
  if (::tcgetattr(shown_, &settings) != 0) return;
  // The user's terminal ends lines itself where it is not going to be raw.
  if (!types_) settings.c_oflag &= ~static_cast<tcflag_t>(OPOST);
  ::tcsetattr(master, TCSANOW, &settings);
}

void UserTerminal::CopySizeTo(int master) const {
  winsize size{};
  if (::ioctl(shown_, TIOCGWINSZ, &size) == 0) ::ioctl(master, TIOCSWINSZ, &size);
}

void UserTerminal::Enter() {
  if (!types_ || raw_ || ::tcgetpgrp(0) != ::getpgrp()) return;
  termios settings{};
  if (::tcgetattr(0, &settings) != 0) return;
  saved_ = settings;
  ::cfmakeraw(&settings);
  raw_ = ::tcsetattr(0, TCSADRAIN, &settings) == 0;
}

void UserTerminal::Leave() {
  if (!raw_) return;
  raw_ = false;
  // From the background this would stop us; the job in front has set the terminal up for itself.
  if (::tcgetpgrp(0) == ::getpgrp()) ::tcsetattr(0, TCSADRAIN, &*saved_);
}

}  // namespace sluice::supervisor
