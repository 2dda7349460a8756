//! Goal: all who need an image that is on its way wait for the one fetch, which goes on without those who
//! called for it. Method: a source that accepts connections and never answers.

use berth_domain::id::{ClusterId, ImageUid, TimeMs};
use berth_domain::image::Sha256;
use berth_domain::vm::DiskFormat;
use tempfile::TempDir;
use tokio::net::TcpListener;
use uuid::Uuid;

use super::*;

fn fetch(directory: &TempDir, number: u128, address: &str) -> Fetch {
    let uid = ImageUid(Uuid::from_u128(number));
    let content = ImageContent {
        length_bytes: 5,
        virtual_bytes: 5,
        sha256: Sha256([1; 32]),
    };
    Fetch {
        store: ImageStore::new(directory.path().to_owned(), "h1".parse().unwrap()),
        grant: ImageGrant {
            cluster: ClusterId(Uuid::from_u128(1)),
            file: ImageFile::new("data".parse().unwrap(), uid),
            format: DiskFormat::Raw,
            content: Some(content),
            download: None,
            conductor: "c1".parse().unwrap(),
            issued_at: TimeMs(0),
            expires_at: TimeMs(0),
        },
        content,
        origin: Origin {
            host: "h2".parse().unwrap(),
            address: address.to_owned(),
            grant: None,
        },
    }
}

#[tokio::test]
async fn one_fetch_serves_all_who_wait() {
    let directory = TempDir::new().unwrap();
    let source = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", source.local_addr().unwrap());
    let stopping = CancellationToken::new();
    let fetches = ImageFetches::new(Dialer::default(), stopping.clone());
    let first = fetches.join(fetch(&directory, 1, &address));
    let second = fetches.join(fetch(&directory, 1, &address));
    let other = fetches.join(fetch(&directory, 2, &address));
    assert!(first.same_channel(&second));
    assert!(!first.same_channel(&other));
    // Each of the two has connected once.
    let _connections = [
        source.accept().await.unwrap(),
        source.accept().await.unwrap(),
    ];
    drop((first, other));
    assert_eq!(fetches.lock().len(), 2);
    let third = fetches.join(fetch(&directory, 1, &address));
    assert!(second.same_channel(&third));

    stopping.cancel();
    for mut outcome in [second, third] {
        let ended = outcome.wait_for(Option::is_some).await.unwrap().clone();
        assert_eq!(ended.unwrap().unwrap_err().reason, "AGENT_STOPPING");
    }
    // The one that no caller waits for has ended too.
    while !fetches.lock().is_empty() {
        tokio::task::yield_now().await;
    }
}
