//! The grant to have an agent take, fetch or send an image.
//!
//! It says what is in the image, so that an agent checks what it receives against what the cluster has
//! recorded, and not against what a conductor claims. It names no host: an image may be on any.
//!
//! Invariant: a download is in the grant, and nowhere else in the call, so that an agent connects to no other
//! URL than the scheduler signed, and takes no download for an upload or the other way round.

use super::{LIFETIME_MS, Times, Words};
use crate::id::{ClusterId, TimeMs};
use crate::image::{DiskFormat, Image, ImageContent, ImageDownload, ImageFile};
use crate::name::ServiceName;
use crate::refusal::Refusal;

const WORDS: Words<'static> = Words {
    grant: "the grant for the image",
    renewal: "repeat the request",
};

/// That a conductor may have agents take, fetch and send an image.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ImageGrant {
    /// The cluster.
    pub cluster: ClusterId,
    /// The image.
    pub file: ImageFile,
    /// The format of its file.
    pub format: DiskFormat,
    /// What is in it; absent of an image that is being added, for the one agent that takes it.
    pub content: Option<ImageContent>,
    /// What the agent is to download; absent where the image comes in another way.
    pub download: Option<ImageDownload>,
    /// The conductor.
    pub conductor: ServiceName,
    /// When it was made.
    pub issued_at: TimeMs,
    /// Until when it is valid.
    pub expires_at: TimeMs,
}

/// What an [`ImageGrant`] is compared with.
#[derive(Clone, Copy, Debug)]
pub struct PresentedImage<'a> {
    /// The agent's cluster.
    pub cluster: ClusterId,
    /// The name in the conductor's certificate; absent where callers have none, and where an agent calls.
    pub conductor: Option<&'a str>,
    /// The time of the cluster, as the agent knows it.
    pub now: TimeMs,
    /// When the scheduler stopped to use the key, if it did.
    pub key_retired_at: Option<TimeMs>,
}

impl ImageGrant {
    /// What the signed bytes begin with, before the encoded grant: so they are those of no other message.
    pub const PREFIX: &[u8] = b"berth.operation.v1.ImageGrant\0";

    /// Returns a grant that is made now.
    #[must_use]
    pub fn new(
        cluster: ClusterId,
        image: &Image,
        download: Option<ImageDownload>,
        conductor: ServiceName,
        now: TimeMs,
    ) -> Self {
        Self {
            cluster,
            file: image.file(),
            format: image.format,
            content: image.content,
            download,
            conductor,
            issued_at: now,
            expires_at: TimeMs(now.0.saturating_add(LIFETIME_MS)),
        }
    }

    /// Checks that the grant is for this call.
    ///
    /// # Errors
    ///
    /// What differs.
    pub fn check(&self, call: &PresentedImage<'_>) -> Result<(), Refusal> {
        let times = Times {
            issued_at: self.issued_at,
            expires_at: self.expires_at,
        };
        times.check(call.now, call.key_retired_at, &WORDS)?;
        WORDS.same("cluster", &self.cluster, &call.cluster)?;
        call.conductor.map_or(Ok(()), |caller| {
            WORDS.same("conductor", &self.conductor.as_str(), &caller)
        })
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::grant::{EXPIRED, INVALID, OF_ANOTHER, SKEW_MS};
    use crate::id::ImageUid;
    use crate::name::ImageName;

    /// Goal: a grant is for what it names and for nothing else. Method: each field of the call changed
    /// alone.
    #[test]
    fn each_difference_is_refused() {
        let uuid = |n: u128| Uuid::from_u128(n);
        let at = TimeMs(1_000_000_000);
        let grant = ImageGrant {
            cluster: ClusterId(uuid(1)),
            file: ImageFile::new(ImageName::new("debian").unwrap(), ImageUid(uuid(2))),
            format: DiskFormat::Qcow2,
            content: None,
            download: None,
            conductor: ServiceName::new("conductor-1").unwrap(),
            issued_at: at,
            expires_at: TimeMs(at.0 + LIFETIME_MS),
        };
        let call = PresentedImage {
            cluster: ClusterId(uuid(1)),
            conductor: Some("conductor-1"),
            now: at,
            key_retired_at: None,
        };
        let nameless = PresentedImage {
            conductor: None,
            ..call
        };
        let last = PresentedImage {
            now: TimeMs(at.0 + LIFETIME_MS + SKEW_MS),
            ..call
        };
        for good in [call, nameless, last] {
            assert_eq!(grant.check(&good), Ok(()));
        }
        let other_cluster = PresentedImage {
            cluster: ClusterId(uuid(9)),
            ..call
        };
        let other_conductor = PresentedImage {
            conductor: Some("conductor-2"),
            ..call
        };
        let late = PresentedImage {
            now: TimeMs(last.now.0 + 1),
            ..call
        };
        let early = PresentedImage {
            now: TimeMs(at.0 - SKEW_MS - 1),
            ..call
        };
        let retired = PresentedImage {
            key_retired_at: Some(TimeMs(at.0 - SKEW_MS - 1)),
            ..call
        };
        for (bad, reason) in [
            (other_cluster, OF_ANOTHER),
            (other_conductor, OF_ANOTHER),
            (late, EXPIRED),
            (early, INVALID),
            (retired, INVALID),
        ] {
            assert_eq!(grant.check(&bad).unwrap_err().reason, reason, "{bad:?}");
        }
    }
}
