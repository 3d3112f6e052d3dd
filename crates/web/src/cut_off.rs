//! Output that is cut off. A client must not take what it got for all of it.

use std::{
    future::{Future, ready},
    io,
};

use futures_util::{FutureExt, Stream, StreamExt, stream};

/// The output until `end`. If that comes first, the last item is an error, so that the answer breaks off instead of ending.
pub(super) fn cut_off_at<T>(
    output: impl Stream<Item = io::Result<T>>,
    end: impl Future<Output = ()>,
) -> impl Stream<Item = io::Result<T>> {
    let end = end.shared();
    let ended = end.clone();
    let error = stream::once(ready(())).filter_map(move |()| {
        let is_cut_off = ended.peek().is_some();
        ready(is_cut_off.then(|| Err(io::Error::other("the output was cut off"))))
    });
    output.take_until(end).chain(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn items(
        output: impl Stream<Item = io::Result<&'static str>>,
    ) -> Vec<Result<&'static str, String>> {
        output.map(|item| item.map_err(|error| error.to_string())).collect().await
    }

    #[tokio::test]
    async fn only_output_that_is_cut_off_ends_with_an_error() {
        let whole = cut_off_at(stream::iter([Ok("a"), Ok("b")]), std::future::pending());
        assert_eq!(items(whole).await, [Ok("a"), Ok("b")]);
        let cut_off = cut_off_at(stream::pending(), ready(()));
        assert_eq!(items(cut_off).await, [Err("the output was cut off".to_owned())]);
    }
}
