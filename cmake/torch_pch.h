// Precompiled for every folder that uses torch. Sources still include what they use. Without autograd's headers, which
// only a few files need: with them, loading this takes twice as long.
#include <ATen/ATen.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>
