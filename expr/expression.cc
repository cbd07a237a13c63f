#include "expr/expression.h"
