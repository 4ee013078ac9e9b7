// The policies that come with Pliant.
#pragma once

#include <pliant/policy.h>
#include <pliant/types.h>

#include <string>

namespace pliant::policy {

/// A line each: how it is called, and what it does.
std::string named_policies();

}  // namespace pliant::policy
