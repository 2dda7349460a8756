//! URLs that images are downloaded from: http and https, strictly read, and what a redirection leads to.
//!
//! Not here: which addresses a host may connect to, which its agent decides; the names are resolved there.
//!
//! Invariant: nothing but scheme, host and port is in any text that is made of a URL: a path or a query may
//! be what gives access. Only [`ImageUrl::as_str`] and [`ImageUrl::target`] return the rest.

use core::net::Ipv6Addr;
use std::fmt;
use std::str::FromStr;

use super::Sha256;

/// The longest URL.
pub const URL_LENGTH_MAX: usize = 2_048;

/// The longest name of a host.
const HOST_LENGTH_MAX: usize = 253;

/// How a server is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// In plain text: anyone on the way can change what comes.
    Http,
    /// Over TLS.
    Https,
}

impl Scheme {
    /// Returns its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

/// A URL that an image is downloaded from.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ImageUrl {
    scheme: Scheme,
    /// A name, an IPv4 address, or an IPv6 address without brackets.
    host: String,
    port: u16,
    /// Path and query.
    target: String,
    /// All of it, without a fragment.
    text: String,
}

/// What a host is to download as an image.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ImageDownload {
    /// Where it is.
    pub url: ImageUrl,
    /// The checksum that it is to have; any if absent.
    pub sha256: Option<Sha256>,
}

/// Why a text is no URL of an image. It does not repeat the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidUrl {
    /// Another scheme, or none.
    #[error("must begin with https:// or http://")]
    Scheme,
    /// A user name or a password.
    #[error("must not have a user name or password: they would pass through the cluster")]
    Credentials,
    /// The name or address of the server.
    #[error(
        "must have the name or address of a server, and a port from 1 to 65535 where it has one"
    )]
    Server,
    /// A character that is in no URL.
    #[error("must be written in the characters of URLs, others as %XX")]
    Characters,
    /// Its length.
    #[error("must have {URL_LENGTH_MAX} characters at most")]
    Length,
}

impl ImageUrl {
    /// Returns how its server is reached.
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Returns the name or address of its server, an IPv6 address without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the port of its server.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the server as the header `Host` names it.
    #[must_use]
    pub fn authority(&self) -> String {
        let host = match self.host.contains(':') {
            true => format!("[{}]", self.host),
            false => self.host.clone(),
        };
        match self.port == self.scheme.default_port() {
            true => host,
            false => format!("{host}:{}", self.port),
        }
    }

    /// Returns path and query.
    #[must_use]
    pub fn target(&self) -> &str {
        &self.target
    }

    /// Returns the last part of its path, which may be empty.
    #[must_use]
    pub fn file_name(&self) -> &str {
        let path = path_of(&self.target);
        path.rsplit('/').next().unwrap_or_default()
    }

    /// Returns all of it, which may give access to what is there: it is for no log, message or record.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns what a reference in the header `Location` leads to.
    ///
    /// # Errors
    ///
    /// When that is no URL of an image.
    pub fn join(&self, reference: &str) -> Result<Self, InvalidUrl> {
        let reference = without_fragment(reference);
        let scheme = self.scheme.as_str();
        let origin = || format!("{scheme}://{}", self.authority());
        let path = path_of(&self.target);
        if has_scheme(reference) {
            reference.parse()
        } else if reference.starts_with("//") {
            format!("{scheme}:{reference}").parse()
        } else if reference.starts_with('/') {
            format!("{}{reference}", origin()).parse()
        } else if reference.is_empty() {
            format!("{}{}", origin(), self.target).parse()
        } else if reference.starts_with('?') {
            format!("{}{path}{reference}", origin()).parse()
        } else {
            let directory = path.rfind('/').map_or("/", |at| &path[..=at]);
            format!("{}{directory}{reference}", origin()).parse()
        }
    }
}

impl FromStr for ImageUrl {
    type Err = InvalidUrl;

    fn from_str(text: &str) -> Result<Self, InvalidUrl> {
        let text = without_fragment(text);
        if text.len() > URL_LENGTH_MAX {
            return Err(InvalidUrl::Length);
        }
        let (scheme, rest) = text.split_once("://").ok_or(InvalidUrl::Scheme)?;
        let scheme = [Scheme::Http, Scheme::Https]
            .into_iter()
            .find(|known| known.as_str().eq_ignore_ascii_case(scheme))
            .ok_or(InvalidUrl::Scheme)?;
        // A backslash ends the server for browsers and not for others: it is in no URL.
        if !rest.bytes().all(is_of_urls) {
            return Err(InvalidUrl::Characters);
        }
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(end);
        if authority.contains('@') {
            return Err(InvalidUrl::Credentials);
        }
        let (host, port) = split_authority(authority)?;
        let port = match port {
            Some(port) => read_port(port)?,
            None => scheme.default_port(),
        };
        let (path, query) = target.split_at(path_of(target).len());
        let target = format!("{}{query}", without_dots(path));
        let mut url = Self {
            scheme,
            host: host.to_ascii_lowercase(),
            port,
            target,
            text: String::new(),
        };
        url.text = format!("{}://{}{}", scheme.as_str(), url.authority(), url.target);
        Ok(url)
    }
}

impl fmt::Display for ImageUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme.as_str(), self.authority())
    }
}

impl fmt::Debug for ImageUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ImageUrl({self}/…)")
    }
}

/// Fragments are for the reader of a page, and no server gets them.
fn without_fragment(text: &str) -> &str {
    text.split('#').next().unwrap_or_default()
}

/// Returns the path in a path with a query.
fn path_of(target: &str) -> &str {
    target.split('?').next().unwrap_or_default()
}

/// Returns whether a reference begins with a scheme, whichever.
fn has_scheme(reference: &str) -> bool {
    let Some((scheme, _)) = reference.split_once(':') else {
        return false;
    };
    let is_of_schemes = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.');
    scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && scheme.bytes().all(is_of_schemes)
}

/// The characters of RFC 3986 but `#`.
fn is_of_urls(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~%:/?[]@!$&'()*+,;=".contains(&byte)
}

fn split_authority(authority: &str) -> Result<(&str, Option<&str>), InvalidUrl> {
    if let Some(rest) = authority.strip_prefix('[') {
        let (address, port) = rest.split_once(']').ok_or(InvalidUrl::Server)?;
        // Without a zone: which interface it means differs between hosts.
        address
            .parse::<Ipv6Addr>()
            .map_err(|_| InvalidUrl::Server)?;
        return match port.strip_prefix(':') {
            Some(port) => Ok((address, Some(port))),
            None if port.is_empty() => Ok((address, None)),
            None => Err(InvalidUrl::Server),
        };
    }
    let (host, port) = match authority.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (authority, None),
    };
    let is_of_names = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
    let is_name = !host.is_empty() && host.len() <= HOST_LENGTH_MAX;
    match is_name && host.bytes().all(is_of_names) {
        true => Ok((host, port)),
        false => Err(InvalidUrl::Server),
    }
}

fn read_port(text: &str) -> Result<u16, InvalidUrl> {
    let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let port = text.parse().ok().filter(|port| is_number && *port != 0);
    port.ok_or(InvalidUrl::Server)
}

/// Resolves `.` and `..` in a path, as servers may refuse them.
fn without_dots(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    for segment in &segments {
        match *segment {
            "." => {}
            ".." => {
                parts.pop();
            }
            segment => parts.push(segment),
        }
    }
    // A path that ends with them names a directory.
    if matches!(segments.last(), Some(&"." | &"..")) {
        parts.push("");
    }
    format!("/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> ImageUrl {
        text.parse().unwrap_or_else(|why| panic!("{text}: {why}"))
    }

    /// Goal: a URL names the server and the file that it names for every client.
    #[test]
    fn urls_are_read() {
        for (text, shown, host, port, target) in [
            (
                "https://a.example/x.qcow2",
                "https://a.example",
                "a.example",
                443,
                "/x.qcow2",
            ),
            (
                "HTTP://A.Example:8080",
                "http://a.example:8080",
                "a.example",
                8080,
                "/",
            ),
            ("http://a:80/", "http://a", "a", 80, "/"),
            ("https://a?token=x", "https://a", "a", 443, "/?token=x"),
            (
                "https://a/b/../c/./d?x=/../y#z",
                "https://a",
                "a",
                443,
                "/c/d?x=/../y",
            ),
            ("https://a/b/..", "https://a", "a", 443, "/"),
            ("https://a/../../b/", "https://a", "a", 443, "/b/"),
            (
                "https://[::1]:8443/x",
                "https://[::1]:8443",
                "::1",
                8443,
                "/x",
            ),
            (
                "https://[fd00::1]/x",
                "https://[fd00::1]",
                "fd00::1",
                443,
                "/x",
            ),
            (
                "http://2130706433/",
                "http://2130706433",
                "2130706433",
                80,
                "/",
            ),
            ("https://a/%2e%2e/b", "https://a", "a", 443, "/%2e%2e/b"),
        ] {
            let url = url(text);
            assert_eq!(url.to_string(), shown, "{text}");
            assert_eq!((url.host(), url.port()), (host, port), "{text}");
            assert_eq!(url.target(), target, "{text}");
            assert_eq!(url.as_str(), format!("{shown}{target}"), "{text}");
            assert_eq!(url.as_str().parse(), Ok(url), "{text}");
        }
        assert_eq!(url("https://a/b/c.qcow2?d=e/f").file_name(), "c.qcow2");
    }

    #[test]
    fn what_is_no_url_of_an_image_is_refused() {
        let long = format!("https://a/{}", "x".repeat(URL_LENGTH_MAX));
        for (text, why) in [
            ("", InvalidUrl::Scheme),
            ("a.example/x", InvalidUrl::Scheme),
            ("//a/x", InvalidUrl::Scheme),
            ("https:/a/x", InvalidUrl::Scheme),
            ("file:///etc/passwd", InvalidUrl::Scheme),
            ("ftp://a/x", InvalidUrl::Scheme),
            ("httpss://a/x", InvalidUrl::Scheme),
            ("https://user:secret@a/x", InvalidUrl::Credentials),
            ("https://user@a/x", InvalidUrl::Credentials),
            ("https://a:80@b/x", InvalidUrl::Credentials),
            ("https:///x", InvalidUrl::Server),
            ("https://:80/x", InvalidUrl::Server),
            ("https://a:/x", InvalidUrl::Server),
            ("https://a:0/x", InvalidUrl::Server),
            ("https://a:+80/x", InvalidUrl::Server),
            ("https://a:65536/x", InvalidUrl::Server),
            ("https://a:80:80/x", InvalidUrl::Server),
            ("https://::1/x", InvalidUrl::Server),
            ("https://[::1/x", InvalidUrl::Server),
            ("https://[::1]x/y", InvalidUrl::Server),
            ("https://[fe80::1%25eth0]/x", InvalidUrl::Server),
            ("https://[127.0.0.1]/x", InvalidUrl::Server),
            ("https://a%2eb/x", InvalidUrl::Server),
            ("https://a/x y", InvalidUrl::Characters),
            ("https://a\\@b/x", InvalidUrl::Characters),
            ("https://a/\r\nHost: b", InvalidUrl::Characters),
            ("https://ä/x", InvalidUrl::Characters),
            (&long, InvalidUrl::Length),
        ] {
            assert_eq!(text.parse::<ImageUrl>(), Err(why), "{text:?}");
        }
    }

    /// Goal: a redirection is resolved as RFC 3986 says, and read by the same rules. Method: each form of a
    /// reference.
    #[test]
    fn redirections_are_resolved() {
        let base = url("https://a.example:8443/b/c?d=e");
        for (reference, target) in [
            ("https://z/x", "https://z/x"),
            ("http://z", "http://z/"),
            ("//z:1/x", "https://z:1/x"),
            ("/x?y#z", "https://a.example:8443/x?y"),
            ("x", "https://a.example:8443/b/x"),
            ("../x", "https://a.example:8443/x"),
            ("./x:y", "https://a.example:8443/b/x:y"),
            ("?x", "https://a.example:8443/b/c?x"),
            ("", "https://a.example:8443/b/c?d=e"),
            ("#x", "https://a.example:8443/b/c?d=e"),
        ] {
            let joined = base.join(reference).expect("a URL");
            assert_eq!(joined.as_str(), target, "{reference}");
        }
        for (reference, why) in [
            ("file:///etc/passwd", InvalidUrl::Scheme),
            ("file:x", InvalidUrl::Scheme),
            ("ftp://a/x", InvalidUrl::Scheme),
            ("data:x", InvalidUrl::Scheme),
            ("https:x", InvalidUrl::Scheme),
            ("https://u:p@a/", InvalidUrl::Credentials),
            ("//u@a/", InvalidUrl::Credentials),
            ("/\\z", InvalidUrl::Characters),
            ("//", InvalidUrl::Server),
        ] {
            assert_eq!(base.join(reference), Err(why), "{reference}");
        }
    }

    /// Goal: what may give access is in no text that is logged or sent to a user.
    #[test]
    fn no_text_has_more_than_the_server() {
        let download = ImageDownload {
            url: url("https://a.example/secret/x?token=secret"),
            sha256: None,
        };
        let texts = [format!("{download:?}"), download.url.to_string()];
        for text in texts {
            assert!(!text.contains("secret"), "{text}");
            assert!(text.contains("a.example"), "{text}");
        }
    }
}
