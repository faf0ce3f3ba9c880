
# ---- roofline.gp
set logscale xy 10
set format x "%g"
set format y "%g"
set xrange [x_low:x_high]
set yrange [y_low:y_high]
set xlabel "arithmetic intensity [FLOP/byte]"
set ylabel "achieved rate [TFLOP/s]"
set samples 500
families = |family|
# Own families and libraries count their colours and markers apart.
array colour[families]
array mark[families]
array name[families]
own = 0
libraries = 0
do for [i = 1:families] {
  if (library[i] > 0) {
    colour[i] = library_colour[libraries % 3 + 1]
    mark[i] = library_mark[libraries % 3 + 1]
    name[i] = family[i] . " (library)"
    libraries = libraries + 1
  } else {
    colour[i] = own_colour[own % 6 + 1]
    mark[i] = own_mark[own % 6 + 1]
    name[i] = family[i]
    own = own + 1
  }
}
least(a, b) = a < b ? a : b
# A label along a slope: the picture is 1200 x 800 within the margins set.
tilt = atan2((top - bottom) * 800 / log10(y_high / y_low), \
             0.675 * 1200 / log10(x_high / x_low)) * 180 / pi
if (dram > 0) {
  set label 2 sprintf("L2 %.1f TB/s", l2) at x_low * 1.15, l2 * x_low * 1.15 * 1.3 \
    left rotate by tilt textcolor rgb "#444444" font ",11"
  set label 3 sprintf("DRAM %.1f TB/s", dram) at x_low * 1.15, dram * x_low * 1.15 * 1.3 \
    left rotate by tilt textcolor rgb "#444444" font ",11"
  # A level whose slope starts under the picture is labelled where it enters.
  if (l2 * x_low * 1.5 < y_low) {
    set label 2 at y_low / l2 * 1.3, y_low * 1.3 * 1.3
  }
  if (dram * x_low * 1.5 < y_low) {
    set label 3 at y_low / dram * 1.3, y_low * 1.3 * 1.3
  }
  set label 4 sprintf("f16 tensor %.0f TFLOP/s", tensor16) \
    at x_high / 1.05, tensor16 * 1.18 right textcolor rgb "#444444" font ",11"
  set label 5 sprintf("tf32 tensor %.0f TFLOP/s", tensor_tf32) \
    at x_high / 1.05, tensor_tf32 * 1.18 right textcolor rgb "#444444" font ",11"
  set label 6 sprintf("f32 plain %.0f TFLOP/s", plain32) \
    at x_high / 1.05, plain32 * 1.18 right textcolor rgb "#444444" font ",11"
}
plot least(dram * x, tensor16) * (dram > 0 ? 1 : NaN) with lines linewidth 2 \
       linecolor rgb "#444444" title "DRAM and f16 level", \
     (l2 * x < tensor16 && dram > 0 ? l2 * x : NaN) with lines linewidth 1.5 \
       dashtype 2 linecolor rgb "#444444" title "L2 level", \
     (dram * x > tensor_tf32 && dram > 0 ? tensor_tf32 : NaN) with lines \
       linewidth 1.2 dashtype 4 linecolor rgb "#777777" title "tf32 level", \
     (dram * x > plain32 && dram > 0 ? plain32 : NaN) with lines \
       linewidth 1.2 dashtype 3 linecolor rgb "#777777" title "f32 level", \
     for [i = 1:families] data index i - 1 using 1:2 with points \
       pointtype mark[i] pointsize 1.3 * point linewidth 1.5 linecolor rgb colour[i] \
       title name[i], \
     data index families using 1:2 with points pointtype 6 pointsize 2.4 * point \
       linewidth 1.2 linecolor rgb "#000000" title "won its race"
