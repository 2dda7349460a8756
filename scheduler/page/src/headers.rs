//! The headers that every response has, those of failures too.
//!
//! Invariant: nothing of another origin is loaded, nothing inline runs, no other page shows this one in a
//! frame, and nothing is stored.

/// What a browser may load for the page, and where it may be shown.
pub const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
                          connect-src 'self'; img-src 'self'; frame-ancestors 'none'; \
                          base-uri 'none'; form-action 'self'";

/// Names, in lower case, and values.
pub const HEADERS: [(&str, &str); 7] = [
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    // For browsers that do not know `frame-ancestors`.
    ("x-frame-options", "DENY"),
    // Without any referrer browsers would not name the origin of a form either.
    ("referrer-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cache-control", "no-store"),
];

/// The type of views and failures.
pub const HTML: &str = "text/html; charset=utf-8";
