//! `/login` and `/logout`, and the cookie of a session.
//!
//! Invariant: the cookie is sent by browsers to this origin alone, over TLS, is not readable by scripts, and
//! not sent with requests that other sites cause.

use berth_domain::refusal::{Code, Refusal};
use berth_page::login as view;
use berth_process::access::audit;
use berth_proto::status::to_status;
use hyper::body::Incoming;
use tokio::time::Instant;
use tonic::codegen::http::header::{COOKIE, SET_COOKIE};
use tonic::codegen::http::request::Parts;
use tonic::codegen::http::{HeaderMap, HeaderValue, Method, Response, StatusCode};

use super::logins::{Logins, NoLogin, SESSION_LIFETIME, Session};
use super::response::{self, Content};
use super::{Caller, Page};

/// The name of the cookie. Browsers take the prefix for this origin and over TLS alone.
const COOKIE_NAME: &str = "__Host-berth-page";

/// Returns the session that a request belongs to.
pub(super) fn session_of(headers: &HeaderMap, logins: &Logins) -> Option<Session> {
    let cookies = headers.get_all(COOKIE).iter();
    let cookies = cookies.filter_map(|value| value.to_str().ok());
    let mut own = cookies
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| {
            let (name, value) = pair.trim().split_once('=')?;
            (name == COOKIE_NAME).then_some(value)
        });
    let secret = own.next()?;
    // A second one is from elsewhere.
    match own.next() {
        Some(_) => None,
        None => logins.session(secret, Instant::now()),
    }
}

/// Returns what those who are not logged in get.
pub(super) fn required() -> Response<Content> {
    response::html(
        StatusCode::UNAUTHORIZED,
        view::explain("This page is for those who present a certificate, or have logged in."),
    )
}

/// Logs an end of a login.
pub(super) fn record(what: &str, principal: &str) {
    let line = audit::Line {
        method: what.to_owned(),
        caller: principal.to_owned(),
        ..audit::Line::default()
    };
    audit::done(&line, "done");
}

fn with_cookie(mut response: Response<Content>, secret: &str, seconds: u64) -> Response<Content> {
    let cookie = format!(
        "{COOKIE_NAME}={secret}; Path=/; Max-Age={seconds}; Secure; HttpOnly; SameSite=Strict"
    );
    // It is made of letters and digits.
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().insert(SET_COOKIE, cookie);
    }
    response
}

fn no_login(why: NoLogin) -> Response<Content> {
    let (status, why) = match why {
        NoLogin::Spent => (
            StatusCode::FORBIDDEN,
            "The link was used already, or is more than 60 seconds old.",
        ),
        NoLogin::TooMany => (
            StatusCode::SERVICE_UNAVAILABLE,
            "Others are logged in in as many browsers as this member permits.",
        ),
        NoLogin::NoRandomness => (
            StatusCode::INTERNAL_SERVER_ERROR,
            "The operating system has no random numbers.",
        ),
    };
    response::html(status, view::explain(why))
}

fn not_offered() -> Response<Content> {
    response::failure(
        StatusCode::NOT_FOUND,
        "No logins",
        "this member does not offer logins: browsers present a certificate",
        Some("set page_login = true in the scheduler's configuration"),
    )
}

impl Page {
    /// Answers `/login`: shows what a link is for, or uses it.
    pub(super) async fn login(
        &self,
        head: &Parts,
        body: Incoming,
        link: &str,
    ) -> Response<Content> {
        let Some(logins) = &self.shared.logins else {
            return not_offered();
        };
        if head.method == Method::POST {
            return self.log_in(head, body, logins).await;
        }
        match logins.is_link_of(link, Instant::now()) {
            Some(principal) => response::html(StatusCode::OK, view::confirm(link, &principal)),
            None if link.is_empty() => required(),
            None => no_login(NoLogin::Spent),
        }
    }

    /// Answers `/logout`.
    pub(super) async fn logout(
        &self,
        head: &Parts,
        body: Incoming,
        caller: &Caller,
    ) -> Response<Content> {
        match &self.shared.logins {
            None => not_offered(),
            Some(_) if head.method != Method::POST => response::method_not_allowed("POST"),
            Some(logins) => self.log_out(head, body, logins, caller).await,
        }
    }

    async fn log_in(&self, head: &Parts, body: Incoming, logins: &Logins) -> Response<Content> {
        let submission = match self.read_form(head, body).await {
            Ok(submission) => submission,
            Err(status) => return response::refusal(&status),
        };
        // The link is the proof that the form is of this member.
        match logins.use_link(&submission.token, Instant::now()) {
            Ok((secret, principal)) => {
                record("PageLogin", &principal);
                let seconds = SESSION_LIFETIME.as_secs();
                with_cookie(response::see_other("/"), &secret, seconds)
            }
            Err(why) => {
                // As any refusal, once a minute.
                let line = audit::Line {
                    method: "PageLogin".to_owned(),
                    caller: "unverified".to_owned(),
                    ..audit::Line::default()
                };
                audit::refused(&line, &refused(why).reason);
                no_login(why)
            }
        }
    }

    async fn log_out(
        &self,
        head: &Parts,
        body: Incoming,
        logins: &Logins,
        caller: &Caller,
    ) -> Response<Content> {
        let submission = match self.read_form(head, body).await {
            Ok(submission) => submission,
            Err(status) => return response::refusal(&status),
        };
        let Some(session) = &caller.session else {
            return with_cookie(response::see_other("/login"), "", 0);
        };
        if let Err(refusal) = self.shared.seals.check(&caller.key(), &submission.token) {
            return response::refusal(&to_status(&refusal));
        }
        logins.end(session);
        record("PageLogout", &session.principal());
        with_cookie(response::see_other("/login"), "", 0)
    }
}

/// Returns why a link was not made.
pub(crate) fn refused(why: NoLogin) -> Refusal {
    let (code, reason, message) = match why {
        NoLogin::TooMany => (
            Code::ResourceExhausted,
            "TOO_MANY_PAGE_LOGINS",
            "as many links are open as there may be",
        ),
        NoLogin::NoRandomness => (
            Code::Unavailable,
            "NO_RANDOMNESS",
            "the operating system has no random numbers",
        ),
        NoLogin::Spent => (
            Code::PermissionDenied,
            "PAGE_LOGIN_SPENT",
            "the link was used, or is too old",
        ),
    };
    Refusal::new(code, reason, message).with_hint("try again in a minute")
}
