"""float32 functions that g++ can vectorise: no branch, no call, right for nan, inf and large arguments.

Method and coefficients: exp, expm1, log, tanh after the Cephes library's single-precision functions (Moshier, Methods
and Programs for Mathematical Functions, 1989); erf after the rational approximation that Eigen uses. A test holds them
to a few units in the last place of float64's answers.
"""

from __future__ import annotations

import re

FUNCTIONS: dict[str, str] = {
    "select": """
// Reinterprets an integer's bits as a float.
static inline float from_bits(int32_t bits) { float f; std::memcpy(&f, &bits, 4); return f; }
""",
    "exp": """
// exp(x) = 2^n exp(r) with |r| <= ln(2)/2. ln(2) is subtracted in two parts, so that r keeps its digits.
static inline float exp_(float x) {
    float c = x > 89.0f ? 89.0f : x;   // inf from here on; comparisons keep a nan
    c = c < -104.0f ? -104.0f : c;     // zero from here on
    const float n = (c * 1.44269504f + 12582912.0f) - 12582912.0f;  // rounds to an integer
    float r = c - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    const float e = p * (r * r) + r + 1.0f;
    const int32_t k = static_cast<int32_t>(n), half = k >> 1;
    // In two factors: 2^128 and the denormals have no single one.
    return e * from_bits((half + 127) << 23) * from_bits((k - half + 127) << 23);
}
""",
    "expm1": """
// As exp, but 1 is never added to the small polynomial: 2^n (exp(r) - 1) + (2^n - 1), halved until the end, since 2^128
// has no float.
static inline float expm1_(float x) {
    float c = x > 88.8f ? 88.8f : x;
    c = c < -104.0f ? -104.0f : c;
    const float n = (c * 1.44269504f + 12582912.0f) - 12582912.0f;
    float r = c - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    const float q = p * (r * r) + r;
    const int32_t k = static_cast<int32_t>(n);
    const float scale = from_bits(((k < -125 ? -125 : k) + 126) << 23);
    const float y = 2.0f * (scale * q + (scale - 0.5f));
    return x > 88.722839f ? INFINITY : x == 0.0f ? x : y;
}
""",
    "log": """
// log(x) = k ln(2) + log(m) with m between sqrt(1/2) and sqrt(2).
static inline float log_(float x) {
    const bool tiny = x < 1.17549435e-38f;  // a denormal has no exponent of its own
    const float scaled = tiny ? x * 8388608.0f : x;
    int32_t bits; std::memcpy(&bits, &scaled, 4);
    int32_t k = (bits >> 23) - 126;
    float m = from_bits((bits & 0x007fffff) | 0x3f000000);
    const bool low = m < 0.707106781f;
    m = (low ? m + m : m) - 1.0f;
    const float e = static_cast<float>(k - (low ? 1 : 0) - (tiny ? 23 : 0));
    const float z = m * m;
    float p = 7.0376836292e-2f;
    p = p * m - 1.1514610310e-1f;
    p = p * m + 1.1676998740e-1f;
    p = p * m - 1.2420140846e-1f;
    p = p * m + 1.4249322787e-1f;
    p = p * m - 1.6668057665e-1f;
    p = p * m + 2.0000714765e-1f;
    p = p * m - 2.4999993993e-1f;
    p = p * m + 3.3333331174e-1f;
    float y = m * z * p - 2.12194440e-4f * e - 0.5f * z;
    y = m + y + 0.693359375f * e;
    y = x == INFINITY ? x : y;
    y = x == 0.0f ? -INFINITY : y;
    return x >= 0.0f ? y : NAN;  // negative, or a nan
}
""",
    "log1p": """
// log(1 + x), with what rounding took from 1 + x given back to first order.
static inline float log1p_(float x) {
    const float u = 1.0f + x;
    const float lost = x - (u - 1.0f);
    const float y = log_(u) + lost / u;
    return x == INFINITY || u == 0.0f ? log_(u) : u == 1.0f ? x : y;
}
""",
    "tanh": """
// An odd polynomial near zero; elsewhere 1 - 2 / (exp(2|x|) + 1).
static inline float tanh_(float x) {
    const float a = std::fabs(x), z = x * x;
    float p = -5.70498872745e-3f;
    p = p * z + 2.06390887954e-2f;
    p = p * z - 5.37397155531e-2f;
    p = p * z + 1.33314422036e-1f;
    p = p * z - 3.33332819422e-1f;
    const float near = p * z * a + a;
    const float far = 1.0f - 2.0f / (exp_(2.0f * a) + 1.0f);
    return std::copysign(a < 0.625f ? near : far, x);
}
""",
    "sigmoid": """
static inline float sigmoid_(float x) { return 1.0f / (1.0f + exp_(-x)); }
""",
    "erf": """
// x P(x^2) / Q(x^2) on [-4, 4], where erf is 1 to the last place at the ends. Within 7 units in the last place.
static inline float erf_(float x) {
    float c = x > 4.0f ? 4.0f : x;
    c = c < -4.0f ? -4.0f : c;
    const float z = c * c;
    float p = -2.72614225801306e-10f;
    p = p * z + 2.77068142495902e-08f;
    p = p * z - 2.10102402082508e-06f;
    p = p * z - 5.69250639462346e-05f;
    p = p * z - 7.34990630326855e-04f;
    p = p * z - 2.95459980854025e-03f;
    p = p * z - 1.60960333262415e-02f;
    float q = -1.45660718464996e-05f;
    q = q * z - 2.13374055278905e-04f;
    q = q * z - 1.68282697438203e-03f;
    q = q * z - 7.37332916720468e-03f;
    q = q * z - 1.42647390514189e-02f;
    return c * (p / q);  // the quotient first: c * p may be too small for a normal number
}
""",
}
NEEDS = {
    "exp": ("select",),
    "expm1": ("select",),
    "log": ("select",),
    "log1p": ("log",),
    "tanh": ("exp",),
    "sigmoid": ("exp",),
}


def definitions(text: str) -> str:
    """The functions that this C++ text calls (`exp_(`), in an order in which they can stand."""
    wanted = set(re.findall(r"\b([a-z0-9]+)_\(", text)) & FUNCTIONS.keys()
    while more := {need for name in wanted for need in NEEDS.get(name, ())} - wanted:
        wanted |= more
    return "\n".join(FUNCTIONS[name].strip() for name in FUNCTIONS if name in wanted)
