// A utility as a user would make one: with nothing to include, and nothing to link with.
#ifndef WITHOUT_UTILITY
extern "C" double pliant_utility(double seconds);
double pliant_utility(double seconds) { return seconds < 600 ? 100 : 100 - (seconds - 600) / 6; }
#endif
