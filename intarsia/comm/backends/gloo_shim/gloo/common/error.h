// See ../../README.md: nothing of gloo/common/error.h is needed.
#pragma once
