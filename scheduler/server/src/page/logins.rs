//! Logins to the page without a certificate in the browser: links that are used once, and the sessions that
//! they begin.
//!
//! ```text
//!   CreatePageLogin (certificate) ─▶ link, 60 s ─▶ form of /login ─▶ session, 8 h ─▶ cookie
//! ```
//!
//! A session has the rights of the certificate with which its link was requested, as long as that is valid
//! and trusted; the access table is consulted for each request as for any other.
//!
//! Not here: cookies, and who may request a link.
//!
//! Invariant: links and sessions are bounded in number and time, in memory alone, and stored by the hash of
//! their secret. A link begins one session at most.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use berth_tls::Peer;
use ring::digest;
use ring::rand::{SecureRandom as _, SystemRandom};
use tokio::time::Instant;

use super::forgery::hex;
use super::login::record;

/// How long a link may be used.
pub(crate) const LINK_LIFETIME: Duration = Duration::from_secs(60);
/// How long a session lasts.
pub(crate) const SESSION_LIFETIME: Duration = Duration::from_secs(8 * 60 * 60);
/// Links and sessions at a time, of all callers and of one; the oldest of a caller gives way to its next.
const LINKS_MAX: usize = 256;
const SESSIONS_MAX: usize = 256;
const OF_ONE_MAX: usize = 8;
/// The bytes of a secret.
const SECRET_BYTES: usize = 32;

/// What a secret is stored by.
type Hash = [u8; 32];

/// What a secret stands for.
#[derive(Clone, Debug)]
struct Grant {
    is_session: bool,
    /// Who has the certificate.
    peer: Peer,
    ends: Instant,
}

impl Grant {
    /// Returns whether it is over, or its certificate is not trusted any more.
    fn is_over(&self, now: Instant) -> bool {
        now >= self.ends || self.peer.check().is_err()
    }

    fn principal(&self) -> Option<String> {
        let identity = self.peer.identity.as_ref();
        identity.map(|identity| identity.principal())
    }
}

/// Why there is no link or session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoLogin {
    /// Others have as many as there may be.
    TooMany,
    /// The operating system has no random numbers.
    NoRandomness,
    /// The link is not one, was used, or is too old.
    Spent,
}

/// The links and sessions of a member.
#[derive(Debug, Default)]
pub(crate) struct Logins(Mutex<Grants>);

#[derive(Debug, Default)]
struct Grants {
    links: BTreeMap<Hash, Grant>,
    sessions: BTreeMap<Hash, Grant>,
}

/// A session that a request belongs to.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    hash: Hash,
    /// Who has the certificate.
    pub(crate) peer: Peer,
}

impl Session {
    /// Returns who is logged in.
    pub(crate) fn principal(&self) -> String {
        let identity = self.peer.identity.as_ref();
        identity.map_or_else(String::new, |identity| identity.principal())
    }

    /// Returns what is known of it by everyone: not its secret.
    pub(crate) fn key(&self) -> String {
        hex(&self.hash)
    }
}

impl Logins {
    fn lock(&self) -> MutexGuard<'_, Grants> {
        // What it guards is whole between any two statements.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a link for a caller; returns its secret.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub(crate) fn create_link(&self, peer: &Peer, now: Instant) -> Result<String, NoLogin> {
        let secret = secret()?;
        let grant = Grant {
            is_session: false,
            peer: peer.clone(),
            ends: now + LINK_LIFETIME,
        };
        insert(&mut self.lock().links, LINKS_MAX, &secret, grant, now)?;
        Ok(secret)
    }

    /// Returns whom a link is for, without using it.
    pub(crate) fn is_link_of(&self, secret: &str, now: Instant) -> Option<String> {
        let grants = self.lock();
        let grant = grants.links.get(&hash(secret))?;
        grant.principal().filter(|_| !grant.is_over(now))
    }

    /// Uses a link; returns the secret of the session, and its principal.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub(crate) fn use_link(&self, link: &str, now: Instant) -> Result<(String, String), NoLogin> {
        let secret = secret()?;
        let mut grants = self.lock();
        let grant = grants.links.remove(&hash(link));
        let grant = grant.filter(|grant| !grant.is_over(now));
        let grant = grant.ok_or(NoLogin::Spent)?;
        let principal = grant.principal().ok_or(NoLogin::Spent)?;
        let session = Grant {
            is_session: true,
            ends: now + SESSION_LIFETIME,
            ..grant
        };
        insert(&mut grants.sessions, SESSIONS_MAX, &secret, session, now)?;
        Ok((secret, principal))
    }

    /// Returns the session of a secret.
    pub(crate) fn session(&self, secret: &str, now: Instant) -> Option<Session> {
        let hash = hash(secret);
        let mut grants = self.lock();
        let grant = grants.sessions.get(&hash)?;
        if grant.is_over(now) {
            let ended = grants.sessions.remove(&hash);
            drop(grants);
            record_ends(ended);
            return None;
        }
        Some(Session {
            hash,
            peer: grant.peer.clone(),
        })
    }

    /// Returns whether a session goes on.
    pub(crate) fn goes_on(&self, session: &Session, now: Instant) -> bool {
        let grants = self.lock();
        let grant = grants.sessions.get(&session.hash);
        grant.is_some_and(|grant| !grant.is_over(now))
    }

    /// Ends a session.
    pub(crate) fn end(&self, session: &Session) {
        self.lock().sessions.remove(&session.hash);
    }
}

/// Adds a grant: those that are over go first, then the caller's oldest where it has as many as one may.
fn insert(
    grants: &mut BTreeMap<Hash, Grant>,
    max: usize,
    secret: &str,
    grant: Grant,
    now: Instant,
) -> Result<(), NoLogin> {
    let over = grants.iter().filter(|(_, grant)| grant.is_over(now));
    let over: Vec<Hash> = over.map(|(hash, _)| *hash).collect();
    let over = over.iter().filter_map(|hash| grants.remove(hash));
    record_ends(over.filter(|grant| grant.is_session));
    let principal = grant.principal();
    let own = grants
        .iter()
        .filter(|(_, other)| other.principal() == principal);
    let oldest = own.clone().min_by_key(|(_, other)| other.ends);
    let oldest = oldest.map(|(hash, _)| *hash);
    if own.count() >= OF_ONE_MAX {
        let replaced = oldest.and_then(|hash| grants.remove(&hash));
        record_ends(replaced.filter(|grant| grant.is_session));
    }
    if grants.len() >= max {
        return Err(NoLogin::TooMany);
    }
    grants.insert(hash(secret), grant);
    Ok(())
}

/// Logs the ends of sessions other than by a logout.
fn record_ends(ended: impl IntoIterator<Item = Grant>) {
    for grant in ended {
        record("PageLoginEnded", &grant.principal().unwrap_or_default());
    }
}

fn secret() -> Result<String, NoLogin> {
    let mut bytes = [0; SECRET_BYTES];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| NoLogin::NoRandomness)?;
    Ok(hex(&bytes))
}

fn hash(secret: &str) -> Hash {
    let digest = digest::digest(&digest::SHA256, secret.as_bytes());
    let mut hash = Hash::default();
    hash.copy_from_slice(digest.as_ref());
    hash
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use berth_tls::{Identity, Role};

    use super::*;

    fn peer(name: &str) -> Peer {
        let identity = Identity {
            role: Role::Operator,
            name: name.to_owned(),
            dns: Vec::new(),
            ips: Vec::new(),
            not_before: 0,
            not_after: i64::MAX,
            fingerprint: String::new(),
        };
        Peer {
            address: None,
            identity: Some(Arc::new(identity)),
            trust: None,
        }
    }

    fn login(logins: &Logins, name: &str, now: Instant) -> Result<String, NoLogin> {
        let link = logins.create_link(&peer(name), now)?;
        logins.use_link(&link, now).map(|(secret, _)| secret)
    }

    #[test]
    fn a_link_is_used_once() {
        let (logins, now) = (Logins::default(), Instant::now());
        let link = logins.create_link(&peer("ann"), now).expect("a link");
        let of = logins.is_link_of(&link, now);
        assert_eq!(of.as_deref(), Some("operator:ann"));
        let (secret, principal) = logins.use_link(&link, now).expect("a session");
        assert_eq!(principal, "operator:ann");
        assert_eq!(logins.use_link(&link, now), Err(NoLogin::Spent));
        assert_eq!(logins.is_link_of(&link, now), None);
        assert!(logins.session(&link, now).is_none(), "a link is no session");
        assert_eq!(logins.use_link(&secret, now), Err(NoLogin::Spent));
        assert!(logins.session(&secret, now).is_some());
        for other in ["", "0", &secret[1..], &secret.to_uppercase()] {
            assert!(logins.session(other, now).is_none(), "{other}");
        }
    }

    #[test]
    fn links_and_sessions_end() {
        let (logins, now) = (Logins::default(), Instant::now());
        let link = logins.create_link(&peer("ann"), now).expect("a link");
        let late = now + LINK_LIFETIME;
        assert_eq!(logins.is_link_of(&link, late), None);
        assert_eq!(logins.use_link(&link, late), Err(NoLogin::Spent));
        // A use that came too late is a use.
        assert_eq!(logins.use_link(&link, now), Err(NoLogin::Spent));

        let secret = login(&logins, "ann", now).expect("a session");
        let end = now + SESSION_LIFETIME;
        let session = logins.session(&secret, end - Duration::from_secs(1));
        let session = session.expect("it goes on");
        assert!(logins.goes_on(&session, now));
        assert!(!logins.goes_on(&session, end));
        assert!(logins.session(&secret, end).is_none());
        assert!(
            logins.session(&secret, now).is_none(),
            "it is over for good"
        );

        let secret = login(&logins, "ann", now).expect("a session");
        let session = logins.session(&secret, now).expect("it goes on");
        logins.end(&session);
        assert!(!logins.goes_on(&session, now));
        assert!(logins.session(&secret, now).is_none());
    }

    /// Goal: one caller does not keep others out, and all together are bounded.
    #[test]
    fn they_are_bounded() {
        let (logins, now) = (Logins::default(), Instant::now());
        let at = |n: u64| now + Duration::from_millis(n);
        let first = login(&logins, "ann", now).expect("a session");
        for n in 1..=20 {
            login(&logins, "ann", at(n)).expect("one more");
        }
        assert!(logins.session(&first, at(21)).is_none(), "the oldest ended");
        assert_eq!(logins.lock().sessions.len(), OF_ONE_MAX);
        let mut last = Ok(String::new());
        for n in 0..SESSIONS_MAX {
            last = login(&logins, &format!("u{n}"), at(30));
        }
        assert_eq!(last, Err(NoLogin::TooMany));
        assert_eq!(logins.lock().sessions.len(), SESSIONS_MAX);
        assert!(login(&logins, "ann", at(40)).is_ok(), "in place of its own");
        let later = at(50) + SESSION_LIFETIME;
        assert!(login(&logins, "u", later).is_ok());
        assert_eq!(logins.lock().sessions.len(), 1);
    }
}
