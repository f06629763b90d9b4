// See ../README.md: nothing of gloo/algorithm.h is needed.
#pragma once
