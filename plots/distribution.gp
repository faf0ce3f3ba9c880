
# ---- distribution.gp: two panels, one above the other
unset label 101
set multiplot
middle = (top + bottom) / 2
set bmargin at screen middle + 0.07
set logscale x
# Round numbers on a logarithmic axis of any width.
set xtics (0.5, 1, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 40, 50, 60, 80, 100, \
  150, 200, 300, 500, 700, 1000, 2000, 3000, 5000, 10000, 20000, 50000, 100000)
set xlabel "median time of a candidate [us]"
set ylabel "candidates"
set yrange [0:*]
set xrange [all_low * 0.95:all_high * 1.05]
set style fill solid 0.85 noborder
plot data index 0 using (sqrt($1 * $2)):($3 > 0 ? 0 : NaN):1:2:(0):3 with boxxyerror \
       linecolor rgb "#0072B2" title "own kernels", \
     data index 0 using (sqrt($1 * $2)):($4 > 0 ? 0 : NaN):1:2:3:($3 + $4) \
       with boxxyerror fillstyle pattern 2 fillcolor rgb "#000000" title "libraries"
unset logscale x
unset label 100
set label 101 note at screen 0.015, screen 0.0195 * note_lines left \
  textcolor rgb "#444444" font ",10"
set tmargin at screen middle - 0.04
set bmargin at screen bottom
set xtics autofreq
set format x "%g"
set xlabel "time in one round of the final race [us]"
set ylabel "share of the rounds"
set yrange [0:1.02]
set xrange [race_low:race_high]
array dash[6] = [1, 2, 4, 3, 5, 1]
if (curves > 0) {
  plot for [i = 1:int(curves)] data index i using 1:2 with steps \
    linewidth (i == 1 ? 3 : 2) dashtype dash[i] \
    linecolor rgb own_colour[i] title curve[i]
} else {
  set xrange [0:1]
  set label 2 "no race of this problem is recorded" at graph 0.5, graph 0.5 center
  plot NaN notitle
}
unset multiplot
