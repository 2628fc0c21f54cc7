"""Conversions between f32 and f16 for x86 processors without F16C, under the names of the functions that LLVM calls.

They round to nearest even, denormals and infinities included, and return quiet NaN: bit for bit like the instructions.
"""

from __future__ import annotations

WIDEN, NARROW = "__extendhfsf2", "__truncsfhf2"

TEXT = f"""
define float @{WIDEN}(half %x) {{
  %short = bitcast half %x to i16
  %bits = zext i16 %short to i32
  %sign.low = and i32 %bits, 32768
  %sign = shl i32 %sign.low, 16
  %size = and i32 %bits, 32767
  %moved = shl i32 %size, 13
  %normal = add i32 %moved, {112 << 23}
  %infinite = add i32 %normal, {112 << 23}
  %quiet = or i32 %infinite, {1 << 22}
  %count = uitofp i32 %size to float
  %small = fmul float %count, 0x3E70000000000000
  %denormal = bitcast float %small to i32
  %is.denormal = icmp ult i32 %size, {1 << 10}
  %is.infinite = icmp uge i32 %size, {31 << 10}
  %is.nan = icmp ugt i32 %size, {31 << 10}
  %a = select i1 %is.denormal, i32 %denormal, i32 %normal
  %b = select i1 %is.infinite, i32 %infinite, i32 %a
  %c = select i1 %is.nan, i32 %quiet, i32 %b
  %d = or i32 %c, %sign
  %result = bitcast i32 %d to float
  ret float %result
}}

define half @{NARROW}(float %x) {{
  %bits = bitcast float %x to i32
  %high = lshr i32 %bits, 16
  %sign = and i32 %high, 32768
  %size = and i32 %bits, 2147483647
  %last = lshr i32 %size, 13
  %odd = and i32 %last, 1
  %up = add i32 %odd, {(1 << 12) - 1}
  %sum = add i32 %size, %up
  %cut = lshr i32 %sum, 13
  %normal = sub i32 %cut, {112 << 10}
  %absolute = bitcast i32 %size to float
  %shifted = fadd float %absolute, 5.0e-01
  %shifted.bits = bitcast float %shifted to i32
  %denormal = sub i32 %shifted.bits, {126 << 23}
  %payload = and i32 %last, 1023
  %nan = or i32 %payload, {63 << 9}
  %is.denormal = icmp ult i32 %size, {113 << 23}
  %overflows = icmp uge i32 %size, {(142 << 23) + 0x7FF000}
  %is.nan = icmp ugt i32 %size, {255 << 23}
  %a = select i1 %is.denormal, i32 %denormal, i32 %normal
  %b = select i1 %overflows, i32 {31 << 10}, i32 %a
  %c = select i1 %is.nan, i32 %nan, i32 %b
  %d = or i32 %c, %sign
  %short = trunc i32 %d to i16
  %result = bitcast i16 %short to half
  ret half %result
}}
"""
