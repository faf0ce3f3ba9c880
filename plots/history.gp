
# ---- history.gp
kinds = |kind|
array history_mark[6] = [7, 5, 9, 11, 13, 15]
# At least a minute, or one race would stand on an axis of no width.
span = last - first > 60 ? last - first : 60.0
set xrange [first - 0.05 * span:first + 1.05 * span]
set format x (span > 400 * 86400 ? "%Y-%m" : span > 3 * 86400 ? "%m-%d" : span > 3 * 3600 ? \
  "%m-%d\n%H:%M" : "%H:%M:%S") timedate
set xlabel strftime("time of recording (UTC), from %Y-%m-%d", first)
set logscale y
set format y "%g"
set ytics add ("2" 2, "3" 3, "5" 5, "20" 20, "30" 30, "50" 50, "200" 200, "500" 500)
set ylabel "winner's time of one run [us]"
set yrange [y_low:y_high]
do for [i = 1:|epoch|] {
  set arrow from epoch[i], graph 0 to epoch[i], graph 1 nohead linewidth 1.2 \
    dashtype 2 linecolor rgb "#888888"
  set label sprintf("epoch %d", i) at epoch[i], graph 0.97 offset 0.5, 0 left \
    textcolor rgb "#444444" font ",11"
}
plot for [i = 1:kinds] data index i - 1 using 1:2 with linespoints \
  linewidth 1.5 pointtype history_mark[(i - 1) % 6 + 1] pointsize 1.2 * point \
  linecolor rgb own_colour[(i - 1) % 6 + 1] title kind[i]
