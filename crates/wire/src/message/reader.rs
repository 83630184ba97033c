//! Reader: big-endian integers and sized slices from bytes, every step checked.

use crate::WireError;

/// What is left of some bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    what: &'static str,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(rest: &'a [u8], what: &'static str) -> Self {
        Self { rest, what }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    fn cut(&self) -> WireError {
        WireError::Truncated { what: self.what }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (head, rest) = self
            .rest
            .split_first_chunk::<N>()
            .ok_or_else(|| self.cut())?;
        self.rest = rest;
        Ok(*head)
    }

    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], WireError> {
        let (head, rest) = self.rest.split_at_checked(len).ok_or_else(|| self.cut())?;
        self.rest = rest;
        Ok(head)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, WireError> {
        let [byte] = self.array()?;
        Ok(byte)
    }

    pub(crate) fn i16(&mut self) -> Result<i16, WireError> {
        Ok(i16::from_be_bytes(self.array()?))
    }

    pub(crate) fn i32(&mut self) -> Result<i32, WireError> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    pub(crate) fn i64(&mut self) -> Result<i64, WireError> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    pub(crate) fn octets<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        self.array()
    }

    /// A signed 16-bit length and that many bytes.
    pub(crate) fn sized_i16(&mut self) -> Result<&'a [u8], WireError> {
        let len = self.i16()?;
        self.take(usize::try_from(len).map_err(|_| self.cut())?)
    }

    /// A signed 32-bit length and that many bytes.
    pub(crate) fn sized_i32(&mut self) -> Result<&'a [u8], WireError> {
        let len = self.i32()?;
        self.take(usize::try_from(len).map_err(|_| self.cut())?)
    }
}
