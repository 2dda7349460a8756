//! What a service manager, as systemd, is notified of: that a program serves.
//!
//! Not here: units (`deploy/packages/systemd`), and watchdogs of service managers.
//!
//! Invariant: a program that no service manager started sends nothing; that one cannot be notified is logged and
//! ends nothing.

use sd_notify::NotifyState;

/// Notifies the service manager that the program serves; a unit of `Type=notify` is started then.
pub fn notify_ready() {
    // The variable stays: other threads may read the environment.
    if let Err(error) = sd_notify::notify(false, &[NotifyState::Ready]) {
        tracing::warn!(%error, "failed to notify the service manager");
    }
}
