// Writes out derived names, so that an expression stands on its own.
#ifndef ROOFTUNE_EXPR_INLINE_H_
#define ROOFTUNE_EXPR_INLINE_H_

#include <map>
#include <string>

#include "absl/strings/string_view.h"

namespace rooftune {

// Replaces every name of `text` that is a key of `definitions` by its text, in parentheses where it is more than
// a name or a number. Definitions are inserted as they are: they must not use other keys. The result may exceed
// the limits of Expression::Parse even if the parts do not.
std::string InlineNames(absl::string_view text, const std::map<std::string, std::string>& definitions);

}  // namespace rooftune

#endif  // ROOFTUNE_EXPR_INLINE_H_
